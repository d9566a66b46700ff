"""A bank over a model file, and work for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from twin_kernels import to_fixed, unpack48

import native
from expert_worker.bank import ExpertBank
from expert_worker.expert_table import ExpertTable
from expert_worker.sources.mapped import MappedSource
from expert_worker.sources.source import Source
from protocol.messages import F32, I64, Sums
from protocol.model import Model


@contextmanager
def open_bank(
    path: Path, threads: int = 1, source: Callable[[ExpertTable], Source] = MappedSource
) -> Iterator[ExpertBank]:
    """All experts of the model at `path`."""
    with Model.open(path) as model, ExpertBank(model, native.Pool(threads), source) as bank:
        yield bank


def activations(rows: int, width: int, seed: int = 1) -> F32:
    """(rows, width), normally distributed."""
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


def rows_of(sums: Sums, rows: int) -> I64:
    """What an answer says, as fixed-point sums (rows, width) of the window's rows."""
    whole = np.zeros((rows, sums.single.shape[1]), np.int64)
    whole[sums.single_row] = to_fixed(sums.single)
    whole[sums.sum_row] = unpack48(sums.sum48) if len(sums.sum48) else sums.sum64
    return whole
