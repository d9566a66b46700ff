"""What planning costs the coordinator, in whose step thread it happens: processor time of whole placements.

48 layers of 128 experts, of which a row uses 8, some far more often than others, and workers of different paces. First
nobody had anything before; then one of them is lost. Nothing runs beside it, and a seed makes the same plans again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from benchmark_page import GrowingTable, heading

from coordinator.demand import Demand
from coordinator.pace import Pace
from coordinator.placement import Holder, Placement
from coordinator.planner import Here, Planner
from protocol.stock import Stock

LAYERS, EXPERTS, CHOSEN = 48, 128, 8
STOCK = Stock(slot_bytes=(3_000_000,) * LAYERS, experts=EXPERTS)
HERE = Here(local=Pace(entry_s=2e-4))
COLUMNS = ("workers", "room", "replicas", "first, ms", "one is lost, ms")


def workers(count: int, limited: bool) -> list[Holder]:
    """Each on a machine of its own, with room for anything or, `limited`, for twice its part of the model."""
    rng = np.random.default_rng(count)
    paces = zip(1e-4 * rng.uniform(0.8, 1.3, count), 3e-4 * rng.uniform(0.9, 1.3, count), strict=True)
    room = 2 * STOCK.bytes // count if limited else -1
    return [
        Holder(serial=serial, room=room, pages=f"box-{serial}", pace=Pace(entry_s=float(entry_s), call_s=float(call_s)))
        for serial, (entry_s, call_s) in enumerate(paces)
    ]


def planner(replicas: float) -> Planner:
    """For experts whose uses differ as those of texts do."""
    counts = np.random.default_rng(0).zipf(1.5, (LAYERS, EXPERTS)).astype(np.float64)
    own = np.zeros((LAYERS, EXPERTS), np.uint8)
    return Planner(stock=STOCK, own=own, demand=Demand.of(counts, CHOSEN), replicas=replicas)


def measured_ms(plan: Callable[[], Placement], rounds: int) -> float:
    """Processor time of a plan: the median."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        plan()
        found.append(1e3 * (time.process_time() - start))
    return statistics.median(found)


def both(count: int, limited: bool, replicas: float, rounds: int) -> tuple[float, float]:
    """The first placement's processor time and, when one worker is lost, the next one's."""
    plans, there = planner(replicas), workers(count, limited)
    rest = plans.place(1, there, None, HERE).without(0)
    first_ms = measured_ms(lambda: plans.place(1, there, None, HERE), rounds)
    return first_ms, measured_ms(lambda: plans.place(2, there[1:], rest, HERE), rounds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 16, 64, 256])
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args(arguments)
    print(heading("What planning costs"))
    page = GrowingTable(COLUMNS)
    for count in options.workers:
        for limited, replicas in ((False, 1.0), (False, 1.5), (True, 1.5)):
            taken = both(count, limited, replicas, options.rounds)
            page.add([count, "for twice its part" if limited else "any", replicas, *taken])


if __name__ == "__main__":
    main()
