"""Starting in any order, waiting under a deadline, stopping without leaving anything."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest
from clusters import LiveCluster, RealProcess, Then, in_force, live_cluster
from reference_answer import Reference

from protocol.errors import RequestError
from protocol.model import Model

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def last_line(process: RealProcess) -> str:
    """Of all that it said."""
    return process.log.read_text().splitlines()[-1]


def test_a_clients_stop_ends_all_with_code_0(demo_model: Path, tmp_path: Path) -> None:
    with live_cluster(demo_model, tmp_path, workers=2) as cluster:
        assert cluster.stop() == [0, 0, 0]
        assert not cluster.survivors()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_coordinator_ends_all_and_tells_clients(
    number: signal.Signals, demo_model: Path, prompt: list[int], tmp_path: Path
) -> None:
    cluster = LiveCluster(demo_model, tmp_path, workers=1)
    try:
        cluster.ready()
        with pytest.raises(RequestError, match="the coordinator is stopping"):
            cluster.answer(prompt, 1900, script=[Then(10, lambda: cluster.coordinator.signal(number))], more=10**6)
        assert cluster.coordinator.wait() == 0
        assert cluster.workers[0].wait() == 0
        assert not cluster.survivors()
    finally:
        cluster.close()


def test_missing_workers_are_named_under_a_deadline(demo_model: Path, tmp_path: Path) -> None:
    cluster = LiveCluster(
        demo_model, tmp_path, workers=0, coordinator_options=["--workers", "2", "--ready-within", "0.5"]
    )
    try:
        assert cluster.coordinator.wait() == 2
        assert "error: 0 of 2 workers joined within 0.5 s" in cluster.logs().splitlines()
    finally:
        cluster.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "/nowhere/model.gguf"], "/nowhere/model.gguf"),
        (["--listen", "tcp://192.0.2.1:7600"], "tcp://192.0.2.1:7600"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_code_2(
    options: list[str], words: str, demo_model: Path, tmp_path: Path
) -> None:
    cluster = LiveCluster(demo_model, tmp_path, workers=0, coordinator_options=options)
    try:
        assert cluster.coordinator.wait() == 2
        errors = [line for line in cluster.logs().splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert words in errors[0]
        assert "Traceback" not in cluster.logs()
    finally:
        cluster.close()


def test_a_second_coordinator_at_the_same_endpoint_is_refused(demo_model: Path, tmp_path: Path) -> None:
    with live_cluster(demo_model, tmp_path, workers=0) as cluster:
        options = ["--listen", cluster.endpoint, "--model", str(demo_model)]
        second = cluster.start("second", "coordinator.main", options)
        assert second.wait() == 2
        assert last_line(second) == f"error: cannot listen at {cluster.endpoint}: Address already in use"


def test_a_worker_with_another_model_is_refused_and_says_why(
    demo_model: Path, tiny_model: Path, tmp_path: Path
) -> None:
    with live_cluster(demo_model, tmp_path, workers=0) as cluster:
        options = ["--connect", cluster.endpoint, "--model", str(tiny_model), "--name", "other"]
        stranger = cluster.start("stranger", "expert_worker.main", options)
        assert stranger.wait() == 2
        with Model.open(tiny_model) as tiny, Model.open(demo_model) as demo:
            found, expected = tiny.fingerprint, demo.fingerprint
        assert last_line(stranger) == (
            f"error: the coordinator at {cluster.endpoint} refused: fingerprint is {found}, expected {expected}: the "
            "coordinator's model, with the same files under the same names; geometry.layers is 4, expected 6; "
            "geometry.expert_width is 128, expected 256"
        )
        assert "Traceback" not in cluster.logs()
        assert len(cluster.status()["workers"]) == 0


def test_a_worker_with_the_name_of_a_living_one_is_refused(demo_model: Path, tmp_path: Path) -> None:
    patient = ["--beat-s", "2"]  # the holder has three seconds to show that it lives, however busy the machine is
    with live_cluster(demo_model, tmp_path, workers=1, coordinator_options=patient) as cluster:
        options = ["--connect", cluster.endpoint, "--model", str(demo_model), "--name", "worker-0"]
        double = cluster.start("double", "expert_worker.main", options)
        assert double.wait() == 2
        holder = f"pid {cluster.workers[0].pid} on {socket.gethostname()}"
        assert last_line(double) == (
            f"error: the coordinator at {cluster.endpoint} refused: name is worker-0, expected a name that no other "
            f"worker has; {holder} has it"
        )
        assert in_force(cluster.status()) == 1


def test_workers_join_a_coordinator_that_was_started_again(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(demo_model, tmp_path, workers=2) as cluster:
        pids = [worker.pid for worker in cluster.workers]
        cluster.coordinator.kill()
        cluster.restart_coordinator()
        report = cluster.ready()
        assert sorted(worker["pid"] for worker in report["workers"]) == sorted(pids)
        reference.check(cluster.answer(prompt, 20))
