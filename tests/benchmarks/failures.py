"""What failures cost: `failures.py [--rounds N] [--tokens N] [--model FILE]` prints a page.

Pauses in a stream of tokens when a worker is killed, frozen or cut off, beside those of one that nothing happens to;
tokens a second with one worker, with a slow one more, and with one more like it; and the time until who joins is used.
Everything runs on this machine: workers share its processors, and links are relays that are told to be bad.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmark_page import GrowingTable, heading
from clusters import HEDGING, LiveCluster, live_cluster, worker_of
from free_ports import three_ports
from paired_figures import in_turn, spread
from relays import BadLink, bad_link

from coordinator.client import Client
from coordinator.sampling import Sampling
from protocol.messages import Token

DEMO = Path(__file__).parents[2] / "configs" / "demo-moe-q4_k_m.gguf"
PROMPT = list(range(100, 130))
AT = 40
"""The token at which something happens."""
TROUBLES = ("nothing", "killed", "frozen", "cut off")
SLOW = ("delay 5", "mbit 50")


def stream(cluster: LiveCluster, tokens: int, at_token: Callable[[], object] = lambda: None) -> list[float]:
    """When each token of an answer came; `at_token` is called after that of number AT."""
    came: list[float] = []
    with Client(cluster.endpoint) as client:
        client.greet(10.0, cluster.check)
        request = client.submit(PROMPT, max_tokens=tokens, stop_ids=[], sampling=Sampling())
        for event in client.events(request, cluster.check):
            if isinstance(event, Token):
                came.append(time.monotonic())
                if event.index == AT:
                    at_token()
    return came


def pause(came: Sequence[float]) -> float:
    """Milliseconds of the longest gap from AT on."""
    return 1000 * max(later - earlier for earlier, later in zip(came[AT:], came[AT + 1 :], strict=False))


def hurt(trouble: str, cluster: LiveCluster, link: BadLink) -> None:
    """Worker 1 has it."""
    match trouble:
        case "killed":
            cluster.workers[1].signal(signal.SIGKILL)
        case "frozen":
            cluster.workers[1].freeze()
        case "cut off":
            link.say("hold both")


def heal(trouble: str, cluster: LiveCluster, link: BadLink) -> None:
    """As before, and in force."""
    match trouble:
        case "killed":
            cluster.workers[1].wait()
            cluster.restart_worker(1)
        case "frozen":
            cluster.workers[1].thaw()
        case "cut off":
            link.say("pass")
    cluster.wait_for(lambda report: worker_of(report, "worker-1")["state"] == "ready")


def pauses(options: argparse.Namespace, folder: Path) -> None:
    """Of two arrangements: another worker holds the same, or the coordinator alone computes what is missing."""
    print("Longest pause between two tokens, ms, after a worker was hurt:\n")
    columns = ["who computes its part", "trouble", "P50", "P99", "longest", "count"]
    page = GrowingTable(columns)
    for who, first in (("another worker", 0), ("the coordinator", 1)):
        with ExitStack() as stack:
            link = stack.enter_context(bad_link(three_ports(), three_ports()))
            settings: dict[str, Any] = {"coordinator_options": HEDGING, "links": {1: link}, "listen": link.target}
            where = folder / f"pauses-{first}"
            where.mkdir()
            cluster = stack.enter_context(live_cluster(options.model, where, workers=2, **settings))
            if first:
                cluster.workers[0].kill()
                cluster.wait_for(lambda report: report["placement"] > 1)
            found: dict[str, list[float]] = {trouble: [] for trouble in TROUBLES}
            stream(cluster, 2 * AT)  # for warming
            for number in range(options.rounds):
                for trouble in in_turn(TROUBLES, number):
                    came = stream(cluster, options.tokens, partial(hurt, trouble, cluster, link))
                    found[trouble].append(pause(came))
                    heal(trouble, cluster, link)
            for trouble, figures in found.items():
                ascending = sorted(figures)
                p99 = ascending[min(len(ascending) - 1, round(0.99 * len(ascending)))]
                page.add([who, trouble, statistics.median(figures), p99, ascending[-1], len(figures)])


def speeds(options: argparse.Namespace, folder: Path) -> None:
    """In turns, each cluster idle while another is asked."""
    print(f"\nTokens a second; W is a worker, slow W one behind a link of {', '.join(SLOW)} (ms each way, Mbit/s):\n")
    page = GrowingTable(["workers", "tokens/s", "beside {W}"])
    with ExitStack() as stack:
        clusters: dict[str, LiveCluster] = {}
        for name, workers in (("{W}", 1), ("{W, slow W}", 2), ("{W, W}", 2)):
            where = folder / f"speeds-{len(clusters)}"
            where.mkdir()
            link = stack.enter_context(bad_link(three_ports(), three_ports()))
            settings: dict[str, Any] = {"coordinator_options": HEDGING, "listen": link.target}
            if "slow" in name:
                settings["links"] = {1: link}
                for command in SLOW:
                    link.say(command)
            clusters[name] = stack.enter_context(live_cluster(options.model, where, workers=workers, **settings))
        found: dict[str, list[float]] = {name: [] for name in clusters}
        for number in range(options.rounds + 1):
            for name in in_turn(list(clusters), number):
                came = stream(clusters[name], options.tokens)
                if number:  # the first is for warming
                    found[name].append((len(came) - 1) / (came[-1] - came[0]))
        for name, figures in found.items():
            ratios = [mine / one for mine, one in zip(figures, found["{W}"], strict=True)]
            page.add([name, spread(figures), spread(ratios)])


def joining(options: argparse.Namespace, folder: Path) -> None:
    """Of a second worker, while answers stream."""
    print("\nFrom the start of a worker's process until it is used, while an answer streams, s:\n")
    page = GrowingTable(["until it is", "median [quartiles] (count)"])
    placed: list[float] = []
    used: list[float] = []
    where = folder / "joining"
    where.mkdir()
    with live_cluster(options.model, where, workers=1, coordinator_options=HEDGING) as cluster:
        for number in range(1, options.rounds + 1):
            began = time.monotonic()
            cluster.start_worker(number)
            name = f"worker-{number}"

            def is_there(report: dict[str, Any], name: str = name) -> bool:
                return any(one["name"] == name and one["state"] == "ready" for one in report["workers"])

            cluster.wait_for(is_there)
            placed.append(time.monotonic() - began)
            while not worker_of(cluster.status(), name)["calls"]:
                stream(cluster, AT)
            used.append(time.monotonic() - began)
    page.add(["in force", spread(placed)])
    page.add(["used", spread(used)])


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--only", choices=("pauses", "speeds", "joining"))
    options = parser.parse_args()
    print(heading("What failures cost"))
    with tempfile.TemporaryDirectory() as folder:
        for part in (pauses, speeds, joining):
            if options.only in (None, part.__name__):
                part(options, Path(folder))


if __name__ == "__main__":
    main()
