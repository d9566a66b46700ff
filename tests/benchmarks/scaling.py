"""What 1 to 256 workers do for a large model: simulated, so it does not depend on the machine that runs this.

A model is its sizes in four and a half bits, and a machine is the bytes that it reads a second: --gb-s of each
processor, the coordinator's among them, and --dense-gb-s of whatever computes the coordinator's dense half. Both are as
measured, of two and of sixteen threads (docs/results.md), and so are the costs of calls (`Costs`, and below). With 0
workers the coordinator computes all experts, if its memory has them.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from benchmark_page import GrowingTable

from coordinator.deadlines import CallLimits
from coordinator.simulation.decoding import MISHAPS, decode, pauses
from coordinator.simulation.scenario import Costs, Kind, Scenario, Shape, Varied
from coordinator.simulation.stated import CHANCE
from coordinator.simulation.timeline import WHATS
from protocol.stock import Stock


class Sizes(NamedTuple):
    """Of a model with 128 experts a layer, of which a row uses 8."""

    layers: int
    width: int
    expert_bytes: int
    layer_bytes: int
    """Of the dense half of a layer."""
    head_bytes: int


MODELS = {
    "30b": Sizes(layers=48, width=2048, expert_bytes=2_700_000, layer_bytes=12_000_000, head_bytes=255_000_000),
    "235b": Sizes(layers=94, width=4096, expert_bytes=10_600_000, layer_bytes=40_000_000, head_bytes=510_000_000),
}
"""Qwen3-30B-A3B and Qwen3-235B-A22B."""
EXPERTS, USED = 128, 8
ROW = 0.1
"""What a dense row more costs, of the first one's time: weights are read once for all."""
ANSWER_S = 0.1e-3
"""What a call takes in a worker beside its kernels: checking, slots, packing, with cold caches."""
HERE_ROUND_TRIP_S = 0.45e-3
"""Between processes of one machine: what it takes to wake the transport's threads, both ways."""
WORKERS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


def scenario(workers: int, options: argparse.Namespace) -> Scenario:
    """So many equal machines, but for chance."""
    model = MODELS[options.model]
    stock = Stock(slot_bytes=(model.expert_bytes,) * model.layers, experts=EXPERTS)
    layer_s, head_s = (count / (options.dense_gb_s * 1e9) for count in (model.layer_bytes, model.head_bytes))
    costs = Costs(
        layer_s=layer_s,
        layer_row_s=ROW * layer_s,
        step_s=head_s,
        step_row_s=ROW * head_s,
        entry_s=model.expert_bytes / (options.gb_s * 1e9),
    )
    kind = Kind(
        name="worker",
        count=workers,
        entry_s=Varied(mean=model.expert_bytes / (options.gb_s * 1e9), between=0.1, within=0.1),
        answer_s=Varied(mean=ANSWER_S, within=CHANCE),
        round_trip_s=Varied(mean=HERE_ROUND_TRIP_S + options.round_trip_ms / 1000, within=CHANCE),
        bytes_per_s=Varied(mean=options.mbit * 1e6 / 8),
    )
    return Scenario(
        shape=Shape(stock=stock, used=USED, width=model.width),
        costs=costs,
        kinds=(kind,) if workers else (),
        rows=options.conversations,
        port_bytes_per_s=kind.bytes_per_s.mean,
        limits=CallLimits(),
        seed=options.seed,
    )


def speeds(options: argparse.Namespace) -> None:
    """A row for each number of workers."""
    page = GrowingTable(
        ["workers", "tokens/s", "token, ms", "P99", *(f"{what}, ms" for what in WHATS), "limit", "idle"]
    )
    for workers in options.workers:
        found = decode(scenario(workers, options), options.steps)
        times = (found.percentile_s(50), found.percentile_s(99), *(found.parts_s[what] for what in WHATS))
        page.add([workers, found.tokens_per_s, *(1000 * seconds for seconds in times), found.limit, found.idle])


def changes(options: argparse.Namespace) -> Iterator[tuple[str, Scenario]]:
    """What could be done about a cluster of --around workers."""
    base = scenario(options.around, options)
    [kind] = base.kinds

    def other(**change: Varied) -> Scenario:
        return replace(base, kinds=(replace(kind, **change),))  # type: ignore[arg-type]

    costs, half = base.costs, Varied(mean=kind.entry_s.mean / 2, between=0.1, within=0.1)
    yield "as it is", base
    dense = {name: getattr(costs, name) / 4 for name in ("layer_s", "layer_row_s", "step_s", "step_row_s")}
    yield "a coordinator four times as fast, as with a GPU", replace(base, costs=replace(costs, **dense))
    yield "workers twice as fast", other(entry_s=half)
    yield "twice as many workers", scenario(2 * options.around, options)
    yield (
        "half as many, twice as fast",
        replace(
            scenario(options.around // 2, options), kinds=(replace(kind, count=options.around // 2, entry_s=half),)
        ),
    )
    near = Varied(mean=HERE_ROUND_TRIP_S, within=CHANCE)
    yield "no network between them", other(round_trip_s=near)
    wide = Varied(mean=10 * kind.bytes_per_s.mean)
    yield "a line ten times as wide", replace(other(bytes_per_s=wide), port_bytes_per_s=wide.mean)
    quick = {name: getattr(costs, name) / 2 for name in ("plan_s", "call_s", "answer_s", "control_s", "byte_s")}
    yield "calls and answers at half the cost", replace(base, costs=replace(costs, **quick))
    yield "second copies of half the experts", replace(base, replicas=1.5)


def cures(options: argparse.Namespace) -> None:
    """A row for each change, alone."""
    page = GrowingTable(["change", "tokens/s", "to as it is", *(f"{what}, ms" for what in WHATS)])
    first = 0.0
    for name, changed in changes(options):
        found = decode(changed, options.steps)
        first = first or found.tokens_per_s
        parts = (1000 * found.parts_s[what] for what in WHATS)
        page.add([name, found.tokens_per_s, found.tokens_per_s / first, *parts])


def mishaps(options: argparse.Namespace) -> None:
    """Pauses of the token stream by kind of mishap."""
    logging.disable()
    page = GrowingTable(["workers", "mishap", "pause, ms, P50", "P99", "longest"])
    for workers in options.workers:
        for kind in MISHAPS:
            found = pauses(scenario(workers, options), kind, options.times)
            page.add([workers, kind, *(1000 * found.percentile_s(percent) for percent in (50, 99, 100))])


PARTS = {"speeds": speeds, "cures": cures, "mishaps": mishaps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--model", choices=MODELS, default="30b")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--around", type=int, default=8, help="workers of the cluster that is changed")
    parser.add_argument("--conversations", type=int, default=1)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--times", type=int, default=20, help="of each mishap")
    parser.add_argument("--gb-s", type=float, default=20.0)
    parser.add_argument("--dense-gb-s", type=float, default=90.0)
    parser.add_argument("--round-trip-ms", type=float, default=0.2)
    parser.add_argument("--mbit", type=float, default=1000.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for part in options.parts:
        PARTS[part](options)


if __name__ == "__main__":
    main()
