"""What failures cost: `failures.py [--rounds N] [--tokens N] [--model FILE]` prints a page.

Pauses in a stream of tokens when a worker is killed, frozen or cut off, beside those of one that nothing happens to;
tokens a second with one worker, with a slow one more, and with one more like it; the time until who joins is used; that
from a coordinator's end to the next token; and tokens a second while somebody fetches weights.
Everything runs on this machine: workers share its processors, and links are relays that are told to be bad.
"""

from __future__ import annotations

import argparse
import re
import shutil
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
from command_line import processes_of, wait_until
from free_ports import four_ports
from moe_models import write_model
from paired_figures import in_turn, spread
from relays import BadLink, bad_link
from running_up import private_copy, up

from coordinator.client import Client
from coordinator.sampling import Sampling
from protocol.messages import Token

DEMO = Path(__file__).parents[2] / "configs" / "demo-moe-q4_k_m.gguf"
PROMPT = list(range(100, 130))
AT = 40
"""The token at which something happens."""
TROUBLES = ("nothing", "killed", "frozen", "cut off")
SLOW = ("delay 5", "mbit 50")
FETCHED_LAYERS = 4
"""Of the model whose weights are fetched if none is named: so many that this takes seconds."""


def stream(cluster: LiveCluster, tokens: int, at_token: Callable[[], object] = lambda: None) -> list[float]:
    """When each token of an answer came; `at_token` is called after that of number AT."""
    return tokens_of(cluster.endpoint, tokens, at_token, cluster.check)


def tokens_of(
    endpoint: str,
    tokens: int,
    at_token: Callable[[], object] = lambda: None,
    watch: Callable[[], None] = lambda: None,
) -> list[float]:
    """The same of any cluster."""
    came: list[float] = []
    with Client(endpoint) as client:
        client.greet(10.0, watch)
        request = client.submit(PROMPT, max_tokens=tokens, stop_ids=[], sampling=Sampling())
        for event in client.events(request, watch):
            if isinstance(event, Token):
                came.append(time.monotonic())
                if event.index == AT:
                    at_token()
    return came


def pause(came: Sequence[float], first: int = AT) -> float:
    """Milliseconds of the longest gap from token `first` on."""
    return 1000 * max(later - earlier for earlier, later in zip(came[first:], came[first + 1 :], strict=False))


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
            link = stack.enter_context(bad_link(four_ports(), four_ports()))
            settings: dict[str, Any] = {"coordinator_options": HEDGING, "links": {1: link}, "listen": link.target}
            where = folder / f"pauses-{first}"
            where.mkdir()
            cluster = stack.enter_context(live_cluster(options.model or DEMO, where, workers=2, **settings))
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
            link = stack.enter_context(bad_link(four_ports(), four_ports()))
            settings: dict[str, Any] = {
                "coordinator_options": [*HEDGING, "--placement", "measured"],
                "listen": link.target,
            }
            if "slow" in name:
                settings |= {"links": {1: link}, "worker_env": {"EXPERTMESH_TEST_HOST": "far away"}}
                for command in SLOW:
                    link.say(command)
            clusters[name] = stack.enter_context(
                live_cluster(options.model or DEMO, where, workers=workers, **settings)
            )
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
    with live_cluster(options.model or DEMO, where, workers=1, coordinator_options=HEDGING) as cluster:
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


def restart(options: argparse.Namespace, folder: Path) -> None:
    """Of a cluster that is new each time, for a launcher waits longer before it starts again what has ended often."""
    print("\nFrom the end of a coordinator of `expertmesh up` to the first token of whoever asks then, s:\n")
    found: list[float] = []
    for _ in range(options.rounds):
        config, endpoint = private_copy("local-2.toml", folder)
        config.write_text(re.sub(r'path = "[^"]*"', f'path = "{options.model or DEMO}"', config.read_text()))
        with up(config, endpoint) as cluster:
            cluster.line("ready: 2 workers hold experts")
            tokens_of(endpoint, AT)
            (coordinator,) = processes_of(endpoint, "coordinator.main")
            killed = time.monotonic()
            coordinator.kill()
            if not wait_until(lambda: not coordinator.is_running(), 10.0):  # noqa: B023
                raise SystemExit("a killed coordinator does not end")
            found.append(tokens_of(endpoint, 1)[0] - killed)
    page = GrowingTable(["median [quartiles] (count)", "longest"])
    page.add([spread(found), max(found)])


def fetching(options: argparse.Namespace, folder: Path) -> None:
    """By one worker more, at the speed that is the default, in turns with nobody who does."""
    print("\nTokens a second, and the longest pause, while a worker of this machine fetches its experts' weights:\n")
    model = options.model or write_model(folder / "fetched.gguf", "bench-mid", layers=FETCHED_LAYERS, fill="pool")
    numbers = range(1, options.rounds + 1)
    caches = {number: folder / f"cache-{number}" for number in numbers}
    where = folder / "fetching"
    where.mkdir()
    speeds: dict[str, list[float]] = {"nobody": [], "one worker": []}
    pauses: dict[str, list[float]] = {"nobody": [], "one worker": []}
    with live_cluster(model, where, workers=1, caches=caches, coordinator_options=HEDGING) as cluster:
        stream(cluster, options.tokens)  # for warming
        for number in numbers:
            for who in in_turn(list(speeds), number):
                if who != "nobody":
                    worker = cluster.start_worker(number)
                    _wait_for_bytes(caches[number])
                came = stream(cluster, options.tokens)
                if who != "nobody":
                    if any(
                        one["name"] == worker.name and one["state"] == "ready" for one in cluster.status()["workers"]
                    ):
                        raise SystemExit(
                            "all was fetched before the answer's end: name a larger model, or fewer tokens"
                        )
                    worker.kill()
                    shutil.rmtree(caches[number])
                speeds[who].append((len(came) - 1) / (came[-1] - came[0]))
                pauses[who].append(pause(came, 0))
    page = GrowingTable(["who fetches", "tokens/s", "beside nobody", "longest pause, ms"])
    for who, figures in speeds.items():
        ratios = [mine / one for mine, one in zip(figures, speeds["nobody"], strict=True)]
        page.add([who, spread(figures), spread(ratios), spread(pauses[who])])


def _wait_for_bytes(cache: Path) -> None:
    """Until something of the experts has come."""

    def begun() -> bool:
        return sum(512 * one.stat().st_blocks for one in cache.rglob("*") if one.is_file()) > 16 << 20

    if not wait_until(begun, 60.0):
        raise SystemExit("nothing was fetched within 60 s")


PARTS = (pauses, speeds, joining, restart, fetching)


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--model", type=Path, help="instead of the demo model, or of a larger one to fetch")
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS])
    options = parser.parse_args()
    print(heading("What failures cost"))
    with tempfile.TemporaryDirectory() as folder:
        for part in PARTS:
            if options.only in (None, part.__name__):
                part(options, Path(folder))


if __name__ == "__main__":
    main()
