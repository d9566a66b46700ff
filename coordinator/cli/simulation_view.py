"""What `expertmesh plan --simulate` prints: for people, or as one JSON object."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coordinator.cli.wording import harmless, percent
from coordinator.simulation.decoding import Mishap
from coordinator.simulation.outcome import Decoded, Lived, Pauses
from coordinator.simulation.scenario import Shape
from coordinator.simulation.stated import Network, Tried
from coordinator.simulation.timeline import What
from protocol.wording import counted

WIDTH = 110
LITTLE = 0.05
"""A gain that is not worth more workers."""

IN_WORDS: dict[What, str] = {
    "dense": "attention, routers and head, which the coordinator computes alone",
    "sending": "planning, and handing over calls",
    "calls": "what calls take beside kernels (the network, waking up, taking in answers)",
    "kernels": "the experts themselves",
}
ADVICE: dict[What, str] = {
    "dense": "a faster processor or a GPU for the coordinator helps, more workers do not",
    "sending": "fewer and faster workers help, and more conversations at once",
    "calls": "a faster network helps, fewer and faster workers, and more conversations at once",
    "kernels": "more or faster workers help",
}
"""What to do about the largest part."""


@dataclass(slots=True, kw_only=True, eq=False)
class Found:
    """All that is told."""

    model: str
    shape: Shape
    tried: Tried
    network: Network | None
    variation: float
    peers: int
    decoded: list[Decoded] = field(default_factory=list)
    pauses: dict[int, dict[Mishap, Pauses]] = field(default_factory=dict)
    """By the number of workers, if mishaps were asked for."""
    lived: list[Lived] = field(default_factory=list)
    """If hours were asked for: of each number of workers."""


def as_text(found: Found) -> str:
    """A page of plain text."""
    page = io.StringIO()
    console = Console(file=page, width=WIDTH, highlight=False, color_system=None)
    for label, text in _facts(found):
        console.print(Text(f"{label:<10}{harmless(text)}"), soft_wrap=True)
    console.print()
    console.print(_speeds(found.decoded))
    if found.pauses:
        console.print("\npause when a worker is killed, stands still, loses its network, or one more joins")
        console.print(_mishaps(found))
    if found.lived:
        console.print(f"\n{found.lived[0].seconds / 3600:.3g} hours in which workers have mishaps at random")
        console.print(_lives(found.lived))
    console.print()
    for sentence in remarks(found):
        console.print(Text(f"- {sentence}"), soft_wrap=True)
    return "\n".join(line.rstrip() for line in page.getvalue().split("\n"))


def as_object(found: Found) -> str:
    """One line of JSON."""
    sides = [_as_values(decoded) for decoded in found.decoded]
    for side in sides:
        side["pauses_s"] = {
            kind: {"p50": one.percentile_s(50), "p99": one.percentile_s(99), "times": len(one.pause_s)}
            for kind, one in found.pauses.get(side["workers"], {}).items()
        }
        for one in found.lived:
            if one.workers == side["workers"]:
                side["hours"] = _lived_values(one)
    whole = {
        "model": found.model,
        "tried": asdict(found.tried.own) | {"entry_s_by_threads": dict(found.tried.entry_s)},
        "network": None if found.network is None else asdict(found.network),
        "variation": found.variation,
        "simulated": sides,
        "remarks": list(remarks(found)),
    }
    return json.dumps(whole) + "\n"


def remarks(found: Found) -> Iterator[str]:
    """What limits, and what to do about it, in sentences."""
    decoded = found.decoded
    best = max(decoded, key=lambda one: one.tokens_per_s)
    if not best.workers and len(decoded) > 1:
        yield "the coordinator alone is fastest, if its memory has all experts: calls take longer than workers save"
    if helped := [one for one in decoded if one.workers]:
        yield from _of_workers(helped)
    for one in decoded:
        if one.idle:
            yield f"{one.idle} of {counted(one.workers, 'worker')} get no experts"
        if one.workers and one.local >= LITTLE:
            yield f"with {counted(one.workers, 'worker')}, the coordinator computes {percent(one.local)} of all entries"
    if found.peers:
        yield f"{counted(found.peers, 'peer')} of the file are left out: how fast their GPUs are cannot be tried here"


def _of_workers(decoded: list[Decoded]) -> Iterator[str]:
    """What limits the best number of them, and how many are enough."""
    best = max(decoded, key=lambda one: one.tokens_per_s)
    share = best.parts_s[best.limit] / sum(best.parts_s.values())
    yield (
        f"with {counted(best.workers, 'worker')}, {percent(share)} of a token's time are {IN_WORDS[best.limit]}:"
        f" {ADVICE[best.limit]}"
    )
    enough = min(
        (one for one in decoded if one.tokens_per_s >= (1 - LITTLE) * best.tokens_per_s), key=lambda one: one.workers
    )
    if enough.workers < max(one.workers for one in decoded):
        yield f"more than {counted(enough.workers, 'worker')} gain less than {percent(LITTLE)}"


def _facts(found: Found) -> Iterator[tuple[str, str]]:
    stock, own = found.shape.stock, found.tried.own
    layers = counted(len(stock.layers), "layer")
    yield "model", f"{found.model}: {layers} of {stock.experts} experts, of which a row uses {found.shape.used}"
    dense_ms = 1000 * own.dense_s(len(stock.slot_bytes))
    experts = ", ".join(
        f"{1000 * entry_s:.3g} ms with {counted(threads, 'thread')}"
        for threads, entry_s in sorted(found.tried.entry_s.items())
    )
    yield "tried", f"a token takes {dense_ms:.3g} ms without experts, one expert of one row {experts}"
    yield "routing", "as in the profile" if found.shape.uses is not None else "even: there is no profile"
    if found.network is None:
        yield "machines", "this one, for all"
    else:
        mbit = found.network.bytes_per_s * 8 / 1e6
        yield (
            "machines",
            (
                f"one for each worker, as fast as this one within {percent(found.variation)};"
                f" {1000 * found.network.round_trip_s:g} ms round trip, {mbit:g} Mbit/s"
            ),
        )


def _speeds(decoded: list[Decoded]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    headings = ("workers", "tokens/s", "token, ms", "P99", "dense", "sending", "calls", "kernels")
    for heading in headings:
        table.add_column(heading, justify="right")
    for one in decoded:
        parts = [1000 * one.parts_s[part] for part in IN_WORDS]
        times = [1000 * one.percentile_s(percentile) for percentile in (50, 99)]
        table.add_row(str(one.workers), f"{one.tokens_per_s:.3g}", *(f"{ms:.3g}" for ms in (*times, *parts)))
    return table


def _mishaps(found: Found) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("workers", justify="right")
    kinds = next(iter(found.pauses.values())).keys()
    for kind in kinds:
        table.add_column(f"{kind}, ms", justify="right")
        table.add_column("P99", justify="right")
    for workers, pauses in found.pauses.items():
        cells = [f"{1000 * pauses[kind].percentile_s(percentile):.3g}" for kind in kinds for percentile in (50, 99)]
        table.add_row(str(workers), *cells)
    return table


def _lives(lived: list[Lived]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    kinds = lived[0].counts.keys()
    for heading in ("workers", "tokens/s", "token, ms", "P99", "longest", "degraded", *kinds, "at once"):
        table.add_column(heading, justify="right")
    for one in lived:
        times = [f"{1000 * one.percentile_s(percentile):.3g}" for percentile in (50, 99, 100)]
        counts = [str(one.counts[kind]) for kind in kinds]
        speed, degraded = f"{one.tokens_per_s:.3g}", f"{100 * one.degraded:.3g}%"
        table.add_row(str(one.workers), speed, *times, degraded, *counts, str(one.most_at_once))
    return table


def _lived_values(one: Lived) -> dict[str, Any]:
    return {
        "seconds": one.seconds,
        "steps": one.steps,
        "tokens_per_s": one.tokens_per_s,
        "token_s": {name: one.percentile_s(at) for name, at in (("p50", 50), ("p99", 99), ("longest", 100))},
        "degraded": one.degraded,
        "mishaps": dict(one.counts),
        "most_at_once": one.most_at_once,
    }


def _as_values(one: Decoded) -> dict[str, Any]:
    return {
        "workers": one.workers,
        "idle": one.idle,
        "conversations": one.rows,
        "tokens_per_s": one.tokens_per_s,
        "token_s": {"p50": one.percentile_s(50), "p99": one.percentile_s(99)},
        "parts_s": one.parts_s,
        "limit": one.limit,
        "local": one.local,
    }
