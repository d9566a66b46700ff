"""Simulated clusters beside real ones: tokens per second of 1 to 4 workers, measured and predicted in two ways.

*planned* is what `expertmesh plan --simulate` predicts before anything runs, from what is tried here. *from one* is
what the simulation predicts from what the coordinator of the cluster with one worker reported of its layers in that
round.
In each round the model is tried and all clusters answer, in turns; so a machine that is slower for a while is so in
all. Ratios are measured speed over predicted. By default workers only pretend to compute, --entry-us for each entry, so
that each has a processor of its own, as on other machines; with --real they compute, and share --cores of this machine.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmark_page import heading, table
from clusters import PATIENT, Answer, LiveCluster, live_cluster
from machine_check import MachineCheck
from moe_models import write_model
from observed import Observed
from paired_figures import in_turn, paired_ratios, spread

from coordinator.cli.simulating import tried
from coordinator.config import ClusterConfig, CoordinatorConfig, PlacementConfig, WorkerGroup
from coordinator.cores import usable_cores
from coordinator.simulation.decoding import decode
from coordinator.simulation.scenario import Scenario, Shape
from coordinator.simulation.stated import Tried, stated
from protocol.model import Model

WORKERS = (1, 2, 3, 4)
PROMPT = [1, 2, 3, 4]
GEOMETRY: dict[str, Any] = {"layers": 12, "embd": 512, "experts": 64, "experts_used": 8, "ff_exp": 64}
"""Small, for what pretends to compute; a row uses as many experts as in larger models."""
STEPS = 40
"""That are simulated for a prediction."""
VARIATION = 0.1
"""As `expertmesh plan` has it unless told otherwise."""
WAYS = ("planned", "from one")
AIM = 0.15
"""How far the median ratio may be from 1."""


@contextmanager
def clusters(model: Path, folder: Path, options: argparse.Namespace) -> Iterator[dict[int, LiveCluster]]:
    """One of each number of workers, all of them up: only one is asked at a time."""
    with ExitStack() as stack:
        yield {
            count: stack.enter_context(_cluster(model, folder / str(count), count, options))
            for count in options.workers
        }


@contextmanager
def _cluster(model: Path, folder: Path, workers: int, options: argparse.Namespace) -> Iterator[LiveCluster]:
    folder.mkdir()
    how: dict[str, Any] = {"worker_options": ["--threads", str(options.threads)]}
    if not options.real:
        how |= {"worker_module": "pretending_worker", "worker_env": {ENTRY: str(options.entry_us)}}
    mine = ["--threads", str(options.threads), *PATIENT]
    with live_cluster(model, folder, workers=workers, coordinator_options=mine, **how) as one:
        yield one


ENTRY = "EXPERTMESH_TEST_ENTRY_US"


def token_s(answer: Answer) -> float:
    """From token to token, the median of an answer."""
    return median(answer.elapsed_s[1:])


def observed(answer: Answer, shape: Shape) -> Observed:
    """What the coordinator of one worker tells of an answer."""
    [worker] = answer.report["workers"]
    return Observed(
        layers=answer.report["layers"],
        expert_layers=len(shape.stock.layers),
        all_layers=len(shape.stock.slot_bytes),
        token_s=token_s(answer),
        calls=1.0,
        entry_s=worker["busy_s"] / worker["entries"],
    )


def from_one(seen: Observed, shape: Shape, workers: int, cores: float, seed: int) -> float:
    """Seconds from token to token, the median, as one worker tells."""
    scenario = Scenario(shape=shape, costs=seen.costs(), kinds=(seen.kind(workers),), cores=cores, even=True, seed=seed)
    return decode(scenario, STEPS).percentile_s(50)


def stated_cluster(model: Path, workers: int, threads: int) -> ClusterConfig:
    """The file of a cluster that `_cluster` starts."""
    return ClusterConfig(
        model=model,
        coordinator=CoordinatorConfig(threads=threads),
        workers=(WorkerGroup(name="worker", count=workers, threads=threads),),
        placement=PlacementConfig(by="even"),
    )


def planned(config: ClusterConfig, shape: Shape, trial: Tried, cores: float, seed: int) -> float:
    """Seconds from token to token, the median, as `expertmesh plan --simulate` tells."""
    scenario = stated(config, shape, trial, network=None, cores=cores, variation=VARIATION, seed=seed)
    return decode(scenario, STEPS).percentile_s(50)


def measure(model: Path, folder: Path, options: argparse.Namespace) -> dict[int, dict[str, dict[int, float]]]:
    """Tokens per second by workers, "measured" and in both WAYS, by round."""
    found: dict[int, dict[str, dict[int, float]]] = {one: defaultdict(dict) for one in options.workers}
    configs = {one: stated_cluster(model, one, options.threads) for one in options.workers}
    cores = len(usable_cores()) if options.cores is None else options.cores
    if not options.real:
        cores = math.inf
    check = MachineCheck(min(len(usable_cores()), max(2, max(options.workers) * options.threads)))
    with Model.open(model) as opened, clusters(model, folder, options) as meshes:
        shape = Shape.of(opened)
        for number in range(-1, options.rounds):
            check.settled(options.settle_s)
            trial = tried(opened, configs[1])
            if not options.real:
                trial = replace(trial, entry_s={options.threads: options.entry_us * 1e-6})
            answers = {}
            for count in in_turn(options.workers, number):
                check.settled(options.settle_s)
                answers[count] = meshes[count].answer(PROMPT, options.tokens)
            if number < 0:  # the first faults pages in
                continue
            seen = observed(answers[min(answers)], shape)
            for count, answer in answers.items():
                assert answer.report["local_entries"] == 0, answer.report
                found[count]["measured"][number] = 1 / token_s(answer)
                found[count]["planned"][number] = 1 / planned(configs[count], shape, trial, cores, number)
                found[count]["from one"][number] = 1 / from_one(seen, shape, count, cores, number)
            for way in WAYS:
                ratios = (f"{count}: {one['measured'][number] / one[way][number]:.3f}" for count, one in found.items())
                sys.stderr.write(f"round {number + 1}: measured / {way} {', '.join(ratios)}\n")
            if options.details:
                sys.stderr.write(f"{trial}\n{seen}\n")
    return found


def page(found: dict[int, dict[str, dict[int, float]]]) -> str:
    """The table, and whether each ratio is as near to 1 as is aimed at."""
    rows = []
    for count, speeds in found.items():
        row: list[object] = [count, spread(list(speeds["measured"].values()))]
        for way in WAYS:
            ratios = spread(paired_ratios(speeds["measured"], speeds[way]))
            row += [spread(list(speeds[way].values())), ratios, "yes" if abs(ratios.median - 1) <= AIM else "no"]
        rows.append(row)
    of_ways = [title for way in WAYS for title in (way, "measured / that, paired", f"within {AIM:.0%}")]
    return table(["workers", "measured, tokens/s", *of_ways], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a whole model, in place of a small synthetic one")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS, help="1 must be among them")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--entry-us", type=int, default=500, help="that an entry takes a worker that pretends")
    parser.add_argument("--real", action="store_true", help="workers compute, and share this machine")
    parser.add_argument("--threads", type=int, default=1, help="of each worker, and of the coordinator")
    parser.add_argument("--cores", type=float, help="that workers share with --real; all that there are unless told")
    parser.add_argument("--details", action="store_true", help="print what predictions are made from")
    parser.add_argument("--settle-s", type=float, default=10.0, help="time for the machine to be undisturbed")
    options = parser.parse_args(arguments)
    if 1 not in options.workers:
        parser.error("--workers: predictions are made from what one worker does, so 1 is expected among them")
    logging.disable(logging.INFO)  # of simulated coordinators
    print(heading("Simulated clusters beside real ones"))
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or write_model(Path(folder) / "small.gguf", **GEOMETRY)
        print(page(measure(model, Path(folder), options)))


if __name__ == "__main__":
    main()
