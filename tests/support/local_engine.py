"""An engine that computes everything in this process, and what tests ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import native
from coordinator.dense import DenseModel
from coordinator.dense_cuda import CudaDense
from coordinator.dense_half import DenseHalf
from coordinator.engine import Chunk, Engine, ExpertRunner
from coordinator.local import LocalExperts
from expert_worker.bank import ExpertBank
from native import cuda
from protocol.messages import F32, MAX_ROWS
from protocol.model import Model


@contextmanager
def local_engine(
    path: Path,
    kv: str = "f32",
    threads: int = 1,
    wrap: Callable[[ExpertRunner], ExpertRunner] = lambda experts: experts,
    device: cuda.Device | None = None,
) -> Iterator[Engine]:
    """The model of `path` without workers; `wrap` may put something between the engine and the experts.

    The dense half is on the `device`, if one is given.
    """
    pool = native.Pool(threads)

    def dense_half(model: Model) -> DenseHalf:
        return DenseModel(model, pool, MAX_ROWS, kv) if device is None else CudaDense(model, device, MAX_ROWS, kv)

    with (
        Model.open(path) as model,
        ExpertBank(model, pool) as bank,
        Engine(model, wrap(LocalExperts(bank)), dense_half(model)) as engine,
    ):
        yield engine


def read(engine: Engine, ids: Sequence[int], chunk: int = 512) -> F32:
    """The logits of every position (len(ids), vocabulary) of a new sequence, `chunk` rows a step."""
    sequence = engine.new_sequence(ids, 0)
    starts = range(0, len(ids), chunk)
    return np.concatenate(
        [engine.step([Chunk(sequence=sequence, ids=ids[at : at + chunk], logits="all")])[0] for at in starts]
    )


def greedy(engine: Engine, prompt_ids: Sequence[int], tokens: int) -> list[int]:
    """The best continuation, token by token, ties to the lowest id."""
    sequence = engine.new_sequence(prompt_ids, tokens)
    answer: list[int] = []
    next_ids = list(prompt_ids)
    while len(answer) < tokens:
        [logits] = engine.step([Chunk(sequence=sequence, ids=next_ids)])
        next_ids = [int(logits[0].argmax())]
        answer += next_ids
    return answer
