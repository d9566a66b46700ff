"""The work of `expertmesh logits`: a model run in this process, its logits written row by row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import native
from coordinator.engine import Chunk, Engine
from coordinator.local import LocalExperts
from expert_worker.bank import ExpertBank
from protocol.errors import ConfigError
from protocol.geometry import Geometry
from protocol.gguf import GgufFile
from protocol.layout import ExpertLayout
from protocol.messages import F32


def write_logits(model: Path, ids: Sequence[int], out: Path, *, threads: int, kv: str, chunk: int) -> None:
    """Write fp32 (ids, vocabulary) to `out`, which appears when it is complete. Raises ExpertmeshError."""
    with GgufFile.open(model) as gguf:
        geometry = Geometry.of(gguf)
        layout = ExpertLayout.of(gguf, geometry)
        pool = native.Pool(threads)
        with ExpertBank(gguf, layout, pool) as bank:
            experts = LocalExperts(bank, geometry.experts)
            with Engine(gguf, geometry, layout, experts, pool, kv=kv) as engine:
                _write(engine, ids, out, geometry.vocabulary, chunk)


def _write(engine: Engine, ids: Sequence[int], out: Path, vocabulary: int, chunk: int) -> None:
    sequence = engine.new_sequence(ids, 0)
    with _new_file(out, (len(ids), vocabulary)) as rows, _progress(len(ids)) as advance:
        for start in range(0, len(ids), chunk):
            part = ids[start : start + chunk]
            (rows[start : start + len(part)],) = engine.step([Chunk(sequence=sequence, ids=part, logits="all")])
            advance(len(part))


@contextmanager
def _new_file(out: Path, shape: tuple[int, int]) -> Iterator[F32]:
    """A mapped array that becomes the file `out` at the end, or nothing if the block fails."""
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        rows = np.lib.format.open_memmap(draft, mode="w+", dtype="<f4", shape=shape)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}") from None
    try:
        yield rows
        rows.flush()
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; the function moves it on."""
    columns = TextColumn("computing"), BarColumn(), MofNCompleteColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield lambda rows: progress.advance(task, rows)
