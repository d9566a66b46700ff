"""The work of `expertmesh model pack` and `expertmesh model verify`, and how it looks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.text import Text

from coordinator.cli.output import put
from coordinator.cli.wording import duration, harmless
from coordinator.interrupts import Interrupted
from coordinator.packing import partial_path, write_pack
from coordinator.placement import share_of
from coordinator.verification import Verdict, bytes_to_read, verify
from protocol.model import Model
from protocol.pack import PACK_ENDING, Share
from protocol.pack_plan import PackPlan
from protocol.shard_name import ShardName
from protocol.stock import Stock
from protocol.wording import counted, size

SAY_EVERY_S = 10.0
"""How often progress is told where no bar can be drawn."""


def pack(path: Path, out: Path | None, share: Share | None) -> None:
    """Make a pack of the model at `path`, or go on with it, and tell what was made. Raises ExpertmeshError."""
    began, found_bytes = time.monotonic(), 0
    with Model.open(path) as model:
        there = None if share is None else share_of(Stock.of(model.layout), share)
        plan = PackPlan.of(model, share, there)
        out = default_out(model.files.path, share) if out is None else out
        total = sum(tensor.bytes for tensor in plan.tensors)
        try:
            with _progress("packing", total) as advance:
                for done in write_pack(model, plan, out):
                    found_bytes += done.bytes if done.again else 0
                    advance(done.bytes)
        except Interrupted:
            _tell(f"stopped; {partial_path(out)} has what is done, and the same command goes on from there")
            raise
        again = f", {size(found_bytes)} of it by an earlier run" if found_bytes else ""
        of_experts = "" if there is None or share is None else f", {share} with {counted(int(there.sum()), 'expert')}"
        tensors = counted(len(plan.tensors), "tensor")
        _tell(f"{out}: {tensors}, {size(plan.bytes)}{of_experts}; {duration(time.monotonic() - began)}{again}")


def default_out(path: Path, share: Share | None) -> Path:
    """Beside the model, named after it."""
    shard = ShardName.of(path)
    name = shard.stem if shard else path.name.removesuffix(PACK_ENDING).removesuffix(".gguf")
    return path.with_name(f"{name}{f'.share-{share.number}-of-{share.count}' if share else ''}{PACK_ENDING}")


def verify_files(paths: Sequence[Path], against: Path | None, *, as_json: bool) -> bool:
    """Check each of `paths`, and tell what was found; whether all is well.

    ModelError if `against` cannot be opened, or is a share.
    """
    other = None if against is None else Model.open(against)
    try:
        if other is not None:
            other.files.check_whole("weights are compared with a whole model, or with a whole pack of it")
        with _progress("verifying", sum(bytes_to_read(path, other) for path in paths)) as advance:
            verdicts = [verify(path, other, advance) for path in paths]
    finally:
        if other is not None:
            other.close()
    put(_object(verdicts) if as_json else "".join(map(_lines, verdicts)))
    return not any(verdict.problems for verdict in verdicts)


def _object(verdicts: Sequence[Verdict]) -> str:
    files = [{**asdict(verdict), "path": str(verdict.path)} for verdict in verdicts]
    return json.dumps({"files": files}) + "\n"


def _lines(verdict: Verdict) -> str:
    checked = "structure and holes"
    if verdict.digests:
        checked += f", digests of {counted(verdict.digests, 'tensor')}"
    if verdict.compared:
        checked += f", weights of {counted(verdict.compared, 'tensor')}"
    if not verdict.problems:
        return harmless(f"{verdict.path}: {verdict.kind}, sound: {checked}") + "\n"
    head = f"{verdict.path}: {verdict.kind or 'of no use'}, {counted(len(verdict.problems), 'problem')}:"
    return "".join(f"{harmless(line)}\n" for line in (head, *(f"- {problem}" for problem in verdict.problems)))


def _tell(line: str) -> None:
    Console(stderr=True, highlight=False).print(Text(harmless(line)), soft_wrap=True)


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, elsewhere a line now and then; the function moves it on by bytes."""
    console = Console(stderr=True, highlight=False)
    columns = TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    done, said_at = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, said_at
        done += count
        bar.advance(task, count)
        if not console.is_terminal and (now := time.monotonic()) - said_at >= SAY_EVERY_S:
            said_at = now
            _tell(f"{what}: {size(done)} of {size(total)}")

    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield advance
