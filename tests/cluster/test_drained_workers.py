"""Workers that leave in order while answers stream: nothing is computed twice or late, the bits are the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import PATIENT, LiveCluster, RealProcess, Status, Then, in_force, live_cluster, worker_of
from command_line import run
from reference_answer import Reference

from coordinator.client import Client
from protocol.errors import ConfigError
from protocol.messages import Drain

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

TOKENS = 1900


@pytest.fixture
def cluster(demo_model: Path, tmp_path: Path) -> Iterator[LiveCluster]:
    """Two workers."""
    with live_cluster(demo_model, tmp_path, workers=2, coordinator_options=PATIENT) as cluster:
        yield cluster


def alone(report: Status) -> bool:
    """The first worker has left, the second holds everything."""
    row = worker_of(report, "worker-0")
    return row["state"] == "gone" and row["reason"] == "was drained" and in_force(report) == 1


def last_line(process: RealProcess) -> str:
    return process.log.read_text().splitlines()[-1]


@pytest.mark.parametrize("by", ["client", "signal"])
def test_a_worker_leaves_in_mid_answer_and_nobody_notices(
    cluster: LiveCluster, prompt: list[int], reference: Reference, by: str
) -> None:
    with Client(cluster.endpoint) as client:
        client.greet(10.0)

        def drain() -> None:
            if by == "client":
                client._send(Drain(name="worker-0"))  # `drain` would wait, and this thread follows the answer
            else:
                cluster.workers[0].signal(signal.SIGTERM)

        answer = cluster.answer(prompt, TOKENS, script=[Then(20, drain), Then(alone)])
    reference.check(answer)
    assert answer.report["replans"] == answer.report["late_replies"] == answer.report["local_entries"] == 0
    assert cluster.workers[0].wait() == 0
    how = "SIGTERM, and others hold its experts" if by == "signal" else "told to by the coordinator"
    assert last_line(cluster.workers[0]).endswith(f"leaving: {how}")


def test_the_command_returns_when_the_worker_has_left(cluster: LiveCluster, prompt: list[int]) -> None:
    done = run("drain", "worker-0", cluster.endpoint)
    assert (done.returncode, done.stdout, done.stderr) == (0, "worker-0 has left; others hold its experts\n", "")
    assert cluster.workers[0].wait() == 0
    done = run("drain", "worker-0", cluster.endpoint)
    assert done.returncode == 2
    assert done.stderr == "error: worker-0: nobody is called that any more: it was drained; there: worker-1\n"
    with Client(cluster.endpoint) as client:
        client.greet(10.0)
        client.drain("worker-1", 20.0)  # the last one: the coordinator computes alone
        assert cluster.workers[1].wait() == 0
        answer = cluster.answer(prompt, 5)
        assert answer.report["local_entries"] > 0
        with pytest.raises(ConfigError, match="there: nobody"):
            client.drain("worker-1", 20.0)


def test_another_signal_ends_it_at_once(demo_model: Path, tmp_path: Path) -> None:
    with live_cluster(demo_model, tmp_path, workers=1, coordinator_options=PATIENT) as cluster:
        cluster.coordinator.freeze()  # nobody sees to its experts
        cluster.workers[0].signal(signal.SIGTERM)
        cluster.workers[0].signal(signal.SIGINT)
        assert cluster.workers[0].wait(10) == 0
        assert last_line(cluster.workers[0]).endswith("leaving: SIGINT")
        cluster.coordinator.thaw()
        cluster.wait_for(lambda report: in_force(report) == 0)


def test_without_a_coordinator_it_leaves_soon(demo_model: Path, tmp_path: Path) -> None:
    with live_cluster(demo_model, tmp_path, workers=1, coordinator_options=PATIENT) as cluster:
        cluster.coordinator.kill()
        cluster.workers[0].signal(signal.SIGTERM)
        assert cluster.workers[0].wait(10) == 0
        assert last_line(cluster.workers[0]).endswith("leaving: SIGTERM, and the coordinator says nothing for 1 s")
        cluster.restart_coordinator()
