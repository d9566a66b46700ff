"""Simulated pauses beside real ones: of a worker that is killed, and of one that is frozen, in a small cluster.

The cluster runs here: its workers share this machine's cores, hold the same and hedge as for users. The same cluster is
simulated as `expertmesh plan --simulate --mishaps` does, from what is tried here before it is up. A pause is the
longest wait for a token after the mishap, less what a token takes otherwise. *until closed* is how long the process of
a killed worker takes to be gone.
"""

from __future__ import annotations

import argparse
import logging
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from benchmark_page import heading, table
from clusters import HEDGING, LiveCluster, Then, live_cluster, worker_of
from paired_figures import spread
from simulated import VARIATION, stated_cluster

from coordinator.cli.simulating import tried
from coordinator.cores import usable_cores
from coordinator.simulation.decoding import Mishap, pauses
from coordinator.simulation.scenario import Shape
from coordinator.simulation.stated import stated
from protocol.model import Model

DEMO = Path(__file__).parents[2] / "configs" / "demo-moe-q4_k_m.gguf"
PROMPT = list(range(100, 130))
AT = 40
"""The token at which it happens."""
MORE = 40
"""Tokens after it, at least."""
KINDS: tuple[Mishap, ...] = ("killed", "frozen")


def measure(model: Path, folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each pause, by kind, and "until closed"."""
    found: dict[str, list[float]] = defaultdict(list)
    with live_cluster(model, folder, workers=options.workers, coordinator_options=HEDGING) as cluster:
        cluster.answer(PROMPT, AT)  # for warming
        for number in range(options.rounds):
            for kind in KINDS:
                hurt = partial(_hurt, cluster, kind, found)
                answer = cluster.answer(PROMPT, 1000, script=[Then(AT, hurt)], more=MORE)
                usual_s = statistics.median(answer.elapsed_s[1 : AT + 1])
                found[kind].append(max(answer.elapsed_s[AT + 1 :]) - usual_s)
                _heal(cluster, kind)
            told = ", ".join(f"{kind} {1000 * found[kind][-1]:.1f} ms" for kind in KINDS)
            sys.stderr.write(f"round {number + 1}: {told}\n")
    return found


def _hurt(cluster: LiveCluster, kind: Mishap, found: dict[str, list[float]]) -> None:
    """The last worker has it."""
    worker = cluster.workers[-1]
    if kind == "frozen":
        worker.freeze()
        return
    process, began = psutil.Process(worker.pid), time.perf_counter()
    worker.signal(signal.SIGKILL)
    while process.status() != psutil.STATUS_ZOMBIE and time.perf_counter() < began + 1.0:
        pass
    found["until closed"].append(time.perf_counter() - began)


def _heal(cluster: LiveCluster, kind: Mishap) -> None:
    """As before, and in force."""
    last = len(cluster.workers) - 1
    if kind == "frozen":
        cluster.workers[last].thaw()
    else:
        cluster.workers[last].wait()
        cluster.restart_worker(last)
    cluster.wait_for(lambda report: worker_of(report, f"worker-{last}")["state"] == "ready")


def simulate(model: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """The same, as it is planned."""
    config = stated_cluster(model, options.workers, threads=1)
    with Model.open(model) as opened:
        shape, trial = Shape.of(opened), tried(opened, config)
    scenario = stated(config, shape, trial, network=None, cores=len(usable_cores()), variation=VARIATION)
    return {kind: pauses(scenario, kind, options.times).pause_s.tolist() for kind in KINDS}


def page(measured: dict[str, list[float]], simulated: dict[str, list[float]], workers: int) -> str:
    """A row for each kind, in milliseconds."""
    rows: list[Any] = []
    for kind in KINDS:
        real, made_up = (spread([1000 * each for each in found[kind]]) for found in (measured, simulated))
        rows.append([workers, kind, real, made_up, real.median / made_up.median])
    closed = spread([1000 * each for each in measured["until closed"]])
    columns = ["workers", "mishap", "measured pause, ms", "simulated", "ratio of medians"]
    return table(columns, rows) + f"\nUntil closed: {closed} ms\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--times", type=int, default=20, help="of each mishap, simulated")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # of simulated coordinators
    print(heading("Simulated pauses beside real ones"))
    simulated = simulate(options.model, options)
    with tempfile.TemporaryDirectory() as folder:
        print(page(measure(options.model, Path(folder), options), simulated, options.workers))


if __name__ == "__main__":
    main()
