"""Processes that somebody else starts, by the commands of their units: in any order, and again in any."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from clusters import RealProcess
from command_line import abstract_sockets, processes_of, run, wait_until
from running_up import ask, private_copy

from coordinator.client import Client

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

WITHIN_S = 60.0


class Supervised:
    """The units of one cluster, started by hand."""

    def __init__(self, folder: Path) -> None:
        self.config, self.endpoint = private_copy("local-2.toml", folder)
        self._folder = folder
        assert run("render", "systemd", self.config, "-o", folder / "units").returncode == 0
        self.running: dict[str, RealProcess] = {}

    def start(self, name: str) -> RealProcess:
        """That process, for the first time or again."""
        unit = (self._folder / "units" / f"expertmesh-local-2-{name}.service").read_text()
        [command] = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart=")]
        _, _, _, module, *options = shlex.split(command)
        self.running[name] = RealProcess(name, module, options, self._folder / f"{name}.log", {})
        return self.running[name]

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for a status of which that is true."""
        with Client(self.endpoint) as client:

            def fulfilled() -> bool:
                assert self.running["coordinator"].exit_code() is None, self.log("coordinator")
                report = client.status(1.0)
                return report is not None and condition(report)

            assert wait_until(fulfilled, WITHIN_S), self.log("coordinator")

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()


def serves(*names: str) -> Callable[[dict[str, Any]], bool]:
    """It answers, and these are the workers that compute."""

    def judge(report: dict[str, Any]) -> bool:
        there = {worker["name"] for worker in report["workers"] if worker["state"] == "ready"}
        return report["state"] == "ready" and there == set(names)

    return judge


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Supervised]:
    cluster = Supervised(tmp_path)
    with ExitStack() as stack:
        stack.callback(lambda: [process.kill() for process in cluster.running.values()])
        yield cluster
    assert wait_until(lambda: not processes_of(cluster.endpoint) and not abstract_sockets(cluster.endpoint[6:]), 10.0)


def test_a_coordinator_comes_back_by_the_same_command_without_a_worker(cluster: Supervised) -> None:
    for name in ("box-1", "coordinator", "box-0"):
        cluster.start(name)
    cluster.until(serves("box-0", "box-1"))
    before = ask(cluster.config)
    for name in ("box-1", "coordinator"):
        cluster.running[name].kill()
    cluster.start("coordinator")
    cluster.until(serves("box-0"))
    assert ask(cluster.config)["sha256_logits"] == before["sha256_logits"]
    assert cluster.running["box-0"].exit_code() is None, "it has waited"
    cluster.start("box-1")
    cluster.until(serves("box-0", "box-1"))
    assert ask(cluster.config)["sha256_logits"] == before["sha256_logits"]


def test_a_coordinator_that_is_first_does_not_wait_for_long(cluster: Supervised) -> None:
    cluster.start("coordinator")
    cluster.until(serves())
    alone = ask(cluster.config)
    assert alone["workers"] == []
    for name in ("box-0", "box-1"):
        cluster.start(name)
    cluster.until(serves("box-0", "box-1"))
    assert ask(cluster.config)["sha256_logits"] == alone["sha256_logits"]


def test_whoever_a_coordinator_has_told_to_end_waits_for_the_next(cluster: Supervised) -> None:
    """As when the machine of the coordinator alone is started again."""
    for name in ("coordinator", "box-0", "box-1"):
        cluster.start(name)
    cluster.until(serves("box-0", "box-1"))
    cluster.running["coordinator"].signal(signal.SIGTERM)
    assert [process.wait() for process in cluster.running.values()] == [0, 0, 0]
    for name in ("box-0", "box-1", "coordinator"):  # units of workers say Restart=always
        cluster.start(name)
    cluster.until(serves("box-0", "box-1"))
