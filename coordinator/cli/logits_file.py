"""The work of `expertmesh logits`: a model run in this process, its logits written step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import native
from coordinator.devices import opened
from coordinator.engine import Chunk, Engine
from coordinator.local import LocalExperts
from coordinator.new_file import new_file
from expert_worker.bank import ExpertBank
from protocol.model import Model


def write_logits(
    path: Path,
    ids: Sequence[int],
    out: str,
    *,
    threads: int,
    kv: str,
    chunk: int,
    device: str,
    vram_gib: float | None,
) -> None:
    """Write fp32 (ids, vocabulary) to `out`, which appears when it is complete. Raises ExpertmeshError."""
    pool = native.Pool(threads)
    with (
        Model.open(path) as model,
        _new(out, model) as file,
        ExpertBank(model, pool) as bank,
        opened(device, vram_gib, model, pool, max_rows=chunk, kv=kv) as devices,
    ):
        for _ in devices.fill():
            pass
        with Engine(model, LocalExperts(bank, devices.slots), devices.dense) as engine:
            _write(engine, ids, file, model.geometry.vocabulary, chunk)


def _new(out: str, model: Model) -> AbstractContextManager[BinaryIO]:
    return new_file(out, keep=[file.path for file in model.files.files], option="--out")


def _write(engine: Engine, ids: Sequence[int], file: BinaryIO, vocabulary: int, chunk: int) -> None:
    sequence = engine.new_sequence(ids, 0)
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(ids), vocabulary)}
    np.lib.format.write_array_header_1_0(file, header)
    with _progress(len(ids)) as advance:
        for start in range(0, len(ids), chunk):
            part = ids[start : start + chunk]
            (rows,) = engine.step([Chunk(sequence=sequence, ids=part, logits="all")])
            file.write(np.ascontiguousarray(rows, "<f4").data)
            advance(len(part))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; the function moves it on."""
    columns = TextColumn("computing"), BarColumn(), MofNCompleteColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield lambda rows: progress.advance(task, rows)
