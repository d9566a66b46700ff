"""Simulated clusters beside real ones: tokens per second of 1 to 4 workers, measured and predicted from one of them.

In each round all clusters answer in turns, and the simulation is given what the coordinator of the one with one worker
reported of its layers in that round; so a machine that is slower for a while is so in both. Ratios are measured speed
over predicted. By default workers only pretend to compute, --entry-us for each entry, so that each has a processor of
its own, as on other machines; with --real they compute, and share --cores of this machine.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmark_page import heading, table
from clusters import PATIENT, Answer, LiveCluster, live_cluster
from machine_check import MachineCheck
from moe_models import write_model
from observed import Observed
from paired_figures import in_turn, paired_ratios, spread

from coordinator.simulation.decoding import decode
from coordinator.simulation.scenario import Scenario, Shape
from protocol.model import Model

WORKERS = (1, 2, 3, 4)
PROMPT = [1, 2, 3, 4]
GEOMETRY: dict[str, Any] = {"layers": 12, "embd": 512, "experts": 64, "experts_used": 8, "ff_exp": 64}
"""Small, for what pretends to compute; a row uses as many experts as in larger models."""
STEPS = 40
"""That are simulated for a prediction."""
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
    how = {} if options.real else {"worker_module": "pretending_worker", "worker_env": {ENTRY: str(options.entry_us)}}
    with live_cluster(model, folder, workers=workers, coordinator_options=["--threads", "1", *PATIENT], **how) as one:
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


def predicted(seen: Observed, shape: Shape, workers: int, cores: float, seed: int) -> float:
    """Seconds from token to token, the median."""
    kind = seen.kind(workers, cores=cores)
    scenario = Scenario(shape=shape, costs=seen.costs(), kinds=(kind,), seed=seed)
    return decode(scenario, STEPS).percentile_s(50)


def measure(model: Path, folder: Path, options: argparse.Namespace) -> dict[int, dict[str, dict[int, float]]]:
    """Tokens per second by workers, "measured" and "predicted", by round."""
    found: dict[int, dict[str, dict[int, float]]] = {one: defaultdict(dict) for one in options.workers}
    with Model.open(model) as opened:
        shape = Shape.of(opened)
    check = MachineCheck(2)
    with clusters(model, folder, options) as meshes:
        for number in range(-1, options.rounds):
            answers = {}
            for count in in_turn(options.workers, number):
                check.settled(options.settle_s)
                answers[count] = meshes[count].answer(PROMPT, options.tokens)
            if number < 0:  # the first faults pages in
                continue
            seen = observed(answers[min(answers)], shape)
            cores = check.ratio() if options.real else math.inf
            for count, answer in answers.items():
                assert answer.report["local_entries"] == 0, answer.report
                found[count]["measured"][number] = 1 / token_s(answer)
                found[count]["predicted"][number] = 1 / predicted(seen, shape, count, cores, number)
            told = ", ".join(
                f"{count}: {one['measured'][number] / one['predicted'][number]:.3f}" for count, one in found.items()
            )
            sys.stderr.write(f"round {number + 1}: measured / predicted {told}\n")
    return found


def page(found: dict[int, dict[str, dict[int, float]]]) -> str:
    """The table, and whether each ratio is as near to 1 as is aimed at."""
    rows = []
    for count, speeds in found.items():
        ratios = spread(paired_ratios(speeds["measured"], speeds["predicted"]))
        columns = [spread(list(speeds[what].values())) for what in ("measured", "predicted")]
        rows.append([count, *columns, ratios, "yes" if abs(ratios.median - 1) <= AIM else "no"])
    titles = ["workers", "measured, tokens/s", "predicted", "measured / predicted, paired", f"within {AIM:.0%}"]
    return table(titles, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a whole model, in place of a small synthetic one")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS, help="1 must be among them")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--entry-us", type=int, default=500, help="that an entry takes a worker that pretends")
    parser.add_argument("--real", action="store_true", help="workers compute, and share this machine")
    parser.add_argument("--settle-s", type=float, default=10.0, help="time for the machine to be undisturbed")
    options = parser.parse_args(arguments)
    if 1 not in options.workers:
        parser.error("--workers: predictions are made from what one worker does, so 1 is expected among them")
    print(heading("Simulated clusters beside real ones"))
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or write_model(Path(folder) / "small.gguf", **GEOMETRY)
        print(page(measure(model, Path(folder), options)))


if __name__ == "__main__":
    main()
