"""One answer of one cluster whose experts come from one kind of source; what it took, as a line of JSON.

    tier_side.py --model FILE --source mapped --ram-gib 1 --lookahead on --tokens 32

`tiers.py` runs it in a group of processes with little memory, or a slow disk.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from our_side import OurSide, side_of

from coordinator.config import LookaheadConfig, WorkerGroup
from coordinator.interrupts import Interrupts
from coordinator.launch_plan import LaunchPlan
from coordinator.private_cluster import private_cluster
from protocol.expert_sources import SOURCES

SETTLE_S = 5.0
"""For the beat that tells of the end."""


def main() -> int:
    """Ask once, print, end."""
    options = _options()
    config = private_cluster(options.model, workers=1, threads=options.threads, halves="off")
    group = WorkerGroup(
        name="worker", threads=options.threads, source=options.source, ram_gib=options.ram_gib, headroom_gib=0.0
    )
    lookahead = LookaheadConfig(enabled="off" if options.lookahead == "off" else "on")
    config = replace(config, workers=(group,), lookahead=lookahead)
    with side_of(config, Interrupts(), changed=lambda plan: _looking(plan, options)) as side:
        before = side.status()["workers"]
        timing = side.ask([list(map(int, options.prompt_ids.split(",")))], options.tokens)
        tiers = _tiers(side, before)
    told = {"prompt_s": timing.prompt_s, "decode_s": timing.decode_s, "decoded": timing.decoded, "note": timing.note}
    sys.stdout.write(json.dumps(told | {"ids": timing.ids, "tiers": tiers}) + "\n")
    return 0


def _looking(plan: LaunchPlan, options: argparse.Namespace) -> LaunchPlan:
    """The same with the predictor that was asked for, if that is none that a configuration can name."""
    if options.lookahead in ("off", "on"):
        return plan
    more = ("--predictor", options.lookahead, *(("--trace", str(options.trace)) if options.trace else ()))
    processes = tuple(
        replace(process, command=(*process.command, *more)) if "lookahead" in process.name else process
        for process in plan.processes
    )
    return replace(plan, processes=processes)


def _tiers(side: OurSide, before: list[Mapping[str, Any]]) -> dict[str, int]:
    """What the worker has counted of the answer, once its beats change no more."""
    counts: Mapping[str, int] = {}
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        time.sleep(0.5)  # beats come twice a second
        (worker,) = (one for one in side.status()["workers"] if one["role"] == "worker")
        if worker["tiers"] == counts:
            break
        counts = worker["tiers"]
    (earlier,) = (one["tiers"] for one in before if one["role"] == "worker")
    return {name: count - earlier.get(name, 0) for name, count in counts.items()} | {
        name: counts.get(name, 0) for name in ("copied_experts", "copied_bytes", "locked_bytes", "hints_off")
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--model", type=Path, required=True)
    add("--source", choices=SOURCES, default="mapped")
    add("--ram-gib", type=float)
    add("--lookahead", default="off", help="off, on, or a predictor's name")
    add("--trace", type=Path, help="of the oracle")
    add("--threads", type=int, default=2)
    add("--tokens", type=int, default=32)
    add("--prompt-ids", default="785,3974,13876")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
