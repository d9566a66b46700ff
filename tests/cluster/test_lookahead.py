"""Hints change no bit and delay nothing: whatever the lookahead process does, or is done to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from clusters import PATIENT, LiveCluster, RealProcess, Then, live_cluster
from reference_answer import Reference

from coordinator.config import inputs_endpoint
from expert_worker.lookahead.predict import PREDICTORS
from expert_worker.lookahead.trace import write_trace
from protocol.endpoints import hints_endpoint

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

PREDICTED_LAYERS = 5
"""Of the demo model's six, all but the first."""


class Watched(LiveCluster):
    """A cluster with a lookahead process."""

    def look_ahead(self, *options: str, name: str = "lookahead") -> RealProcess:
        """Start one; it need not be there when this returns."""
        joining = ["--connect", self.endpoint, "--model", str(self._model), "--name", name]
        return self.start(name, "expert_worker.lookahead.main", [*joining, *options])

    def looks_ahead(self, pid: int) -> None:
        """Wait until that process is a member, and hears inputs."""
        self.wait_for(lambda report: listening(report) == [pid])

    def sessions(self) -> set[str]:
        """All that there were, of which workers tell in their logs."""
        return set(re.findall(r"joined session (\w+);", "".join(map(Path.read_text, self._log_dir.glob("*.log")))))


@contextmanager
def watched(model: Path, folder: Path, *options: str, workers: int = 2) -> Iterator[tuple[Watched, RealProcess]]:
    """A cluster that is ready, and its lookahead process; nothing is left at the end."""
    cluster = Watched(model, folder, workers=workers, coordinator_options=PATIENT)
    try:
        lookahead = cluster.look_ahead(*options)
        cluster.ready()
        cluster.looks_ahead(lookahead.pid)
        yield cluster, lookahead
        cluster.stop()
    finally:
        cluster.close()
    assert not cluster.survivors(), cluster.survivors()
    names = Path("/proc/net/unix").read_text()
    assert not [session for session in cluster.sessions() if session in names]


def listening(report: dict[str, Any]) -> list[int]:
    """Processes that look ahead at this moment."""
    return [one["pid"] for one in report["lookahead"] if one["state"] == "ready"]


def silent(report: dict[str, Any]) -> bool:
    """Whether one is told of that was given up since nothing was heard of it."""
    return any(one["state"] == "lost" and one["reason"].startswith("silent for ") for one in report["lookahead"])


def hinted(report: dict[str, Any]) -> bool:
    """Whether any hint was given."""
    return any(one["hints"] > 0 for one in report["lookahead"])


@pytest.mark.parametrize(
    "options", [(), ("--delay-ms", "1000"), *(("--predictor", name) for name in ("previous", "popularity", "random"))]
)
def test_hints_of_any_kind_change_no_bit(
    options: Sequence[str], demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with watched(demo_model, tmp_path, *options) as (cluster, lookahead):
        answer = cluster.answer(prompt, 200)
        slow = "--delay-ms" in options
        report = cluster.wait_for(lambda report: report["inputs"]["published"] > 0 and (slow or hinted(report)))
        assert not slow or report["lookahead"][0]["inputs"] < report["inputs"]["published"] / 10
        assert 0 < report["inputs"]["published"] <= 200 * PREDICTED_LAYERS  # it may be a moment before it subscribes
        assert report["dropped"] == report["late_replies"] == 0
        cluster.stop()
        assert lookahead.exit_code() == 0
    reference.check(answer)
    assert answer.report["local_entries"] == 0


def test_an_oracle_hints_at_what_its_trace_has(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.npz"
    write_trace(trace, {(step, 1): np.array([3, 5], np.int32) for step in range(40)})
    with watched(demo_model, tmp_path, "--predictor", "oracle", "--trace", str(trace)) as (cluster, _):
        reference.check(cluster.answer(prompt, 50))
        report = cluster.wait_for(hinted)
        assert report["lookahead"][0]["hints"] <= 2 * 40


def test_a_cluster_without_one_publishes_nothing(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(demo_model, tmp_path, workers=1) as cluster:
        reference.check(cluster.answer(prompt, 50))
        report = cluster.status()
        assert report["inputs"] == {"published": 0, "refused": 0, "us": 0}
        assert report["lookahead"] == []


def test_one_that_is_killed_in_mid_answer_is_replaced_by_the_next(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with watched(demo_model, tmp_path) as (cluster, lookahead):
        lives = [lookahead]
        script = [
            Then(20, lookahead.kill),
            Then(lambda report: listening(report) == [], lambda: lives.append(cluster.look_ahead())),
            Then(lambda report: hinted(report) and report["lookahead"][0]["pid"] == lives[-1].pid),
        ]
        answer = cluster.answer(prompt, 1900, script=script)
        assert answer.report["replans"] == 0
    reference.check(answer)


def test_one_that_is_frozen_in_mid_answer_is_waited_for_by_nobody(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with watched(demo_model, tmp_path) as (cluster, lookahead):
        script = [
            Then(20, lookahead.freeze),
            Then(lambda report: report["inputs"]["refused"] > 0),
            Then(lambda report: silent(report) and listening(report) == [], lookahead.thaw),
            Then(lambda report: listening(report) == [lookahead.pid]),
        ]
        answer = cluster.answer(prompt, 1900, script=script)
        assert answer.report["replans"] == 0
    reference.check(answer)


def test_garbage_on_its_sockets_is_dropped(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with watched(demo_model, tmp_path) as (cluster, lookahead), zmq.Context() as context:
        [session] = cluster.sessions()
        strangers = [context.socket(kind) for kind in (zmq.XSUB, zmq.SUB, zmq.DEALER, zmq.PUB) for _ in range(2)]
        for number, socket in enumerate(strangers):
            socket.linger = 0
            socket.connect([inputs_endpoint(cluster.endpoint), hints_endpoint(session)][number % 2])
            if socket.type == zmq.SUB:
                socket.subscribe(b"")  # and never reads

        def flood() -> None:
            for socket in strangers:
                for _ in range(50 if socket.type != zmq.SUB else 0):
                    with suppress(zmq.Again):  # whom libzmq does not even let in
                        socket.send_multipart([b"\x02noise", b"\x00" * 9], zmq.DONTWAIT)

        before = cluster.status()["lookahead"][0]["hints"]
        script = [Then(10, flood), Then(30, flood), Then(lambda report: report["lookahead"][0]["hints"] > before)]
        reference.check(cluster.answer(prompt, 1900, script=script))
        assert lookahead.exit_code() is None
        assert all(worker.exit_code() is None for worker in cluster.workers)


def test_a_second_one_on_the_same_machine_says_why_it_ends(demo_model: Path, tmp_path: Path) -> None:
    with watched(demo_model, tmp_path, workers=1) as (cluster, lookahead):
        second = cluster.look_ahead(name="second")
        assert second.wait() == 2
        last = second.log.read_text().splitlines()[-1]
        assert re.fullmatch(
            r"error: cannot listen at ipc://@expertmesh-hints-\w+: Address already in use: "
            r"does another lookahead process of this cluster run on this machine\?",
            last,
        )
        assert lookahead.exit_code() is None


def test_it_follows_a_coordinator_that_was_restarted(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with watched(demo_model, tmp_path, workers=1) as (cluster, lookahead):
        cluster.coordinator.kill()
        cluster.restart_coordinator()
        cluster.ready()
        cluster.looks_ahead(lookahead.pid)
        reference.check(cluster.answer(prompt, 50))
        cluster.wait_for(hinted)
        assert len(cluster.sessions()) == 2


def test_it_leaves_when_its_coordinator_is_gone_for_good(demo_model: Path, tmp_path: Path) -> None:
    with watched(demo_model, tmp_path, "--orphan-s", "3", workers=1) as (cluster, lookahead):
        cluster.coordinator.kill()
        assert lookahead.wait() == 1
        assert "no word from a coordinator" in lookahead.log.read_text()
        cluster.restart_coordinator()
        cluster.ready()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--predictor", "next-router+shared"], "predictor next-router+shared: no shared expert in this model"),
        (["--predictor", "oracle"], "--predictor oracle and --trace FILE are of use together only"),
        (["--predictor", "oracle", "--trace", "/no/such.npz"], "/no/such.npz: a trace of used experts is expected: "),
        (["--model", "/no/such.gguf"], "/no/such.gguf"),
    ],
)
def test_what_it_cannot_do_is_a_sentence(options: list[str], error: str, demo_model: Path, tmp_path: Path) -> None:
    assert "next-router+shared" in PREDICTORS
    options = ["--connect", "ipc://@nobody", "--model", str(demo_model), *options]
    process = RealProcess("lookahead", "expert_worker.lookahead.main", options, tmp_path / "lookahead.log", {})
    assert process.wait() == 2
    [last] = process.log.read_text().splitlines()[-1:]
    assert last.startswith("error: ")
    assert error in last
    assert "Traceback" not in process.log.read_text()
