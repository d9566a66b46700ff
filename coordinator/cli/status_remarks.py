"""Why a cluster may be slow, in sentences: what its report shows that a person can do something about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.cli.load import Load
from coordinator.cli.tier_figures import Tiers
from coordinator.cli.wording import percent
from protocol.wording import counted, size

WORTH_SAYING = 0.05
"""A part of the time, or of the work, that is worth a sentence."""
_ENDS = {"gone": "is gone", "lost": "is lost", "failed": "gets no work"}


def remarks(report: dict[str, Any], load: Load) -> Iterator[str]:
    """A sentence for each thing that is worth it; of the time between the last two reports where that is known."""
    yield from _own_work(report)
    for worker in report["workers"]:
        yield from _of_state(worker)
        begun = Tiers.of(worker)
        if begun is not None and worker["state"] not in ("gone", "lost"):
            yield from _of_reads(worker["name"], load.lately(worker) or begun)
            yield from _of_tiers(worker["name"], begun)
    for process in report["lookahead"]:
        yield from _of_state(process)


def _own_work(report: dict[str, Any]) -> Iterator[str]:
    """Entries that the coordinator computed although there are others."""
    local, others = report["local_entries"], report["device_entries"]
    others += sum(worker["entries"] for worker in report["workers"])
    share = local / max(1, local + others)
    if report["workers"] and share >= WORTH_SAYING:
        yield f"the coordinator itself computed {percent(share)} of all entries: nobody else had them in time"


def _of_state(worker: dict[str, Any]) -> Iterator[str]:
    name, why = worker["name"], worker.get("why", "")
    match worker["state"]:
        case "gone" | "lost" | "failed" as state:
            yield f"{name} {_ENDS[state]}: {worker.get('reason', '')}"
        case "suspect":
            yield f"{name} is late with an answer, and gets no work until that has come" + (why and f"; {why}")
        case "assigned" | "loading":
            done, total = worker["progress"]
            ready = f"{done} of {counted(total, 'layer')}{_still_to_fetch(worker)}"
            yield f"{name} makes its experts ready: {ready}" + (why and f"; {why}")
        case "draining":
            yield f"{name} leaves as soon as others hold its experts"
        case _ if why and worker["sign"] != "busy":
            yield f"{name} is {worker['sign']}: {why}"
    if "left_out" in worker:
        yield f"{name} is given no experts, for it would slow the cluster down: {worker['left_out']}"


def _still_to_fetch(worker: dict[str, Any]) -> str:
    tiers = Tiers.of(worker)
    if tiers is None or not tiers["fetch_left_bytes"]:
        return ""
    rate = "" if tiers.fetch_rate is None else f" at {size(int(tiers.fetch_rate))}/s"
    left = size(tiers["fetch_left_bytes"])
    return f"; it has fetched {size(tiers['fetched_bytes'])} of weights{rate}, {left} are to come"


def _of_reads(name: str, tiers: Tiers) -> Iterator[str]:
    share, read = tiers.reading_share, tiers.share("file_reads")
    if share is None or share < WORTH_SAYING:
        return
    why = "what hints had asked for came late"
    if read:
        rate = "" if tiers.read_rate is None else f" at {size(int(tiers.read_rate))}/s"
        had = f"{percent(read)} of the experts that it needed had to be read"
        why = f"{had}, {size(tiers['file_read_bytes'])}{rate}"
    yield f"{name} waits for files for {percent(share)} of its time: {why}"


def _of_tiers(name: str, tiers: Tiers) -> Iterator[str]:
    if tiers["shed_bytes"]:
        yield f"{name} gave up {size(tiers['shed_bytes'])} of copies, because memory was short"
    if tiers["fetched_damaged"]:
        yield f"{name} fetched {counted(tiers['fetched_damaged'], 'piece')} of weights again, which had come damaged"
    if tiers["fallbacks"]:
        yield f"{name} took the files' mapping {counted(tiers['fallbacks'], 'time')} where direct reads were meant"
    if tiers["hints_off"]:
        yield f"{name} gets no hints in {counted(tiers['hints_off'], 'layer')} for now: they cost more than they saved"
