"""A real worker process and a scripted coordinator over real sockets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from message_examples import run_experts
from open_bank import activations, open_bank, rows_of
from worker_process import EXPERTS, LAYERS, ROOT, WIDTH, WITHIN_S, ScriptedCoordinator, Start

import native
from protocol import codec
from protocol.holder.answer import answer
from protocol.host_memory import host_memory
from protocol.messages import (
    Beat,
    Drain,
    Hello,
    OpenWork,
    Refused,
    RunExperts,
    SayHello,
    Stop,
    Stopped,
    Sums,
    WorkFailed,
)

pytestmark = [pytest.mark.timeout(90), pytest.mark.cluster]


def work(rows: int = 3, **changes: object) -> RunExperts:
    codes, scales = native.Rows(activations(rows, WIDTH)).quantise()
    return run_experts(rows, (1, 3), WIDTH, codes=codes, scales=scales, **changes)


def test_a_whole_life(coordinator: ScriptedCoordinator, start_worker: Start, holder_model: Path) -> None:
    worker = start_worker("--threads", "2")
    hello = coordinator.welcome(worker)
    assert (hello.role, hello.name, hello.pid, hello.threads) == ("worker", "box-0", worker.process.pid, 2)
    assert hello.geometry == {
        "layers": LAYERS,
        "dense_layers": 0,
        "experts": EXPERTS,
        "width": WIDTH,
        "expert_width": 32,
    }
    assert hello.isa in native.available_isas()
    assert 0 < hello.memory <= host_memory().total
    ready = coordinator.assign_all(worker, hello)
    assert (ready.placement, ready.experts) == (1, LAYERS * EXPERTS)
    coordinator.ask(work())
    reply = coordinator.hear(coordinator.work, Sums, worker)
    with open_bank(holder_model) as bank:
        expected = answer(work(), bank, np.ones((LAYERS, EXPERTS), np.uint8))
    assert isinstance(expected, Sums)
    np.testing.assert_array_equal(rows_of(reply, 3), rows_of(expected, 3))
    while (beat := coordinator.hear(coordinator.control, Beat, worker)).calls == 0:
        pass
    assert (beat.token, beat.step, beat.layer, beat.calls, beat.entries, beat.dropped) == ("t1", 3, 1, 1, 6, 0)
    coordinator.ask(work(placement=2))
    failed = coordinator.hear(coordinator.work, WorkFailed, worker)
    assert (failed.layer, failed.expert) == (1, 1)
    assert "placement 2 is not known here" in failed.reason
    coordinator.say(Stop())
    coordinator.hear(coordinator.control, Stopped)
    code, last = worker.ends()
    assert code == 0
    assert "leaving: told to by the coordinator" in last


def test_a_refused_worker_names_every_mismatch(coordinator: ScriptedCoordinator, start_worker: Start) -> None:
    worker = start_worker()
    coordinator.hear(coordinator.control, Hello, worker)
    coordinator.say(Refused(mismatches=[["protocol", "1", "2"], ["geometry.layers", "2", "48"]]))
    code, last = worker.ends()
    assert code == 2
    assert last == (
        f"error: the coordinator at {coordinator.control.endpoint} refused: "
        "protocol is 1, expected 2; geometry.layers is 2, expected 48"
    )


@pytest.mark.parametrize("joined", [False, True])
def test_an_orphan_leaves(coordinator: ScriptedCoordinator, start_worker: Start, joined: bool) -> None:
    worker = start_worker("--orphan-s", "1")
    if joined:
        coordinator.answers_beats = False
        coordinator.welcome(worker)
    code, last = worker.ends()
    assert code == (1 if joined else 2)
    assert f"no word from a coordinator at {coordinator.control.endpoint} for 1 s" in last
    assert f"dialling {coordinator.control.endpoint} as box-0" in worker.log()


def test_garbage_from_the_coordinator_is_dropped_and_counted(
    coordinator: ScriptedCoordinator, start_worker: Start
) -> None:
    worker = start_worker()
    hello = coordinator.welcome(worker)
    coordinator.assign_all(worker, hello)
    good = [bytes(frame) for frame in codec.encode(work())]
    garbage = [[b""], [b"x" * 100], [*good, b""], [good[0][:-1]], [good[0], good[0]], [b"\xc1"] * 40]
    for frames in garbage:
        coordinator.control._socket.send_multipart([coordinator.control_peer, *frames])
        coordinator.work._socket.send_multipart([coordinator.work_peer, *frames])
    coordinator.ask(Stop())  # well-formed, but nothing for this connection
    coordinator.ask(work(session="another"))
    coordinator.ask(work())
    coordinator.hear(coordinator.work, Sums, worker)
    while (beat := coordinator.hear(coordinator.control, Beat, worker)).dropped < 2 * len(garbage) + 2:
        pass
    assert beat.dropped == 2 * len(garbage) + 2
    assert beat.calls == 1


def test_a_worker_that_is_told_to_says_hello_again_and_works_on(
    coordinator: ScriptedCoordinator, start_worker: Start
) -> None:
    worker = start_worker()
    first = coordinator.welcome(worker)
    peers = coordinator.control_peer, coordinator.work_peer
    coordinator.say(SayHello())
    second = coordinator.welcome(worker, session="s2", token="t2")
    assert second.incarnation == first.incarnation
    assert coordinator.control_peer != peers[0]
    assert coordinator.work_peer != peers[1]
    coordinator.ask(work(session="s2"))  # what was assigned in the other session is void, and nothing was here
    assert "not known" in coordinator.hear(coordinator.work, WorkFailed, worker).reason
    coordinator.assign_all(worker, second)
    coordinator.ask(work(session="s2"))
    coordinator.hear(coordinator.work, Sums, worker)


def test_a_restarted_coordinator_is_found_again(start_worker: Start) -> None:
    first = ScriptedCoordinator()
    worker = start_worker(endpoint=first.control.endpoint)
    incarnation = first.welcome(worker).incarnation
    first.close()
    second = ScriptedCoordinator(first.name)
    try:
        assert second.hear(second.control, Beat, worker).token == "t1"
        second.control.send(second.stranger, SayHello())
        hello = second.welcome(worker, session="s2", token="t2")
        assert hello.incarnation == incarnation
        second.assign_all(worker, hello)
        second.ask(work(session="s2"))
        second.hear(second.work, Sums, worker)
    finally:
        second.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("joined", [False, True])
def test_signals_are_an_orderly_end(
    coordinator: ScriptedCoordinator, start_worker: Start, number: signal.Signals, joined: bool
) -> None:
    worker = start_worker()
    if joined:
        coordinator.welcome(worker)
    else:
        coordinator.hear(coordinator.control, Hello, worker)
    worker.process.send_signal(number)
    if joined and number == signal.SIGTERM:
        assert coordinator.hear(coordinator.control, Drain).name == "box-0"
        coordinator.say(Stop())
    if joined:
        coordinator.hear(coordinator.control, Stopped)
    code, last = worker.ends()
    assert code == 0
    assert number.name in last


def test_a_frozen_worker_answers_late_and_goes_on(coordinator: ScriptedCoordinator, start_worker: Start) -> None:
    worker = start_worker()
    hello = coordinator.welcome(worker)
    coordinator.assign_all(worker, hello)
    worker.process.send_signal(signal.SIGSTOP)
    coordinator.ask(work(step=1))
    heard = coordinator.work.receive(0.2)
    assert heard is None or isinstance(heard[1], OpenWork), "which it says again while it has nothing to do"
    worker.process.send_signal(signal.SIGCONT)
    assert coordinator.hear(coordinator.work, Sums, worker).step == 1
    coordinator.ask(work(step=2))
    assert coordinator.hear(coordinator.work, Sums, worker).step == 2


def test_a_model_that_shrinks_fails_the_work_and_not_the_worker(
    coordinator: ScriptedCoordinator, start_worker: Start, holder_model: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(holder_model.read_bytes())
    worker = start_worker(model=copy)
    hello = coordinator.welcome(worker)
    coordinator.assign_all(worker, hello)
    os.truncate(copy, 8192)
    for step in range(3):
        coordinator.ask(work(step=step))
        failed = coordinator.hear(coordinator.work, WorkFailed, worker)
        assert "copy.gguf changed while in use: its size was" in failed.reason
        assert (failed.step, failed.expert) == (step, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "/nowhere/m.gguf"], "error: model file '/nowhere/m.gguf' does not exist"),
        (["--model", __file__], "error: "),
        (["--connect", "tcp://192.0.2.1:7600"], "error: endpoint 'tcp://192.0.2.1:7600': expected tcp://127.0.0.1"),
    ],
)
def test_what_cannot_start_is_one_sentence(start_worker: Start, options: list[str], words: str) -> None:
    worker = start_worker(*options)
    code, last = worker.ends()
    assert code == 2
    assert last.startswith(words)
    assert "Traceback" not in worker.log()


def test_a_work_endpoint_elsewhere_is_refused(coordinator: ScriptedCoordinator, start_worker: Start) -> None:
    worker = start_worker()
    with pytest.raises(AssertionError, match="exited with 2"):
        coordinator.welcome(worker, work="tcp://192.0.2.1:7601")
    assert worker.ends()[1].startswith("error: endpoint 'tcp://192.0.2.1:7601'")


def test_a_worker_dies_with_its_parent_and_does_not_start_without(
    coordinator: ScriptedCoordinator, start_worker: Start, holder_model: Path
) -> None:
    assert start_worker("--parent", "1").ends() == (0, "")
    script = (
        "import signal, subprocess, sys, os\n"
        "child = subprocess.Popen([*sys.argv[1:], '--parent', str(os.getpid())])\n"
        "print(child.pid, flush=True)\n"
        "signal.pause()\n"
    )
    command = [sys.executable, "-P", "-m", "expert_worker.main", "--connect", coordinator.control.endpoint]
    parent = subprocess.Popen(
        [sys.executable, "-c", script, *command, "--model", str(holder_model)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert coordinator.hear(coordinator.control, Hello).pid == int(parent.stdout.readline())  # type: ignore[union-attr]
    finally:
        parent.kill()
    child_output_ends = parent.communicate(timeout=WITHIN_S)  # it shares the parent's stdout
    assert child_output_ends[0] == b""
    deadline = time.monotonic() + WITHIN_S
    while coordinator.control.send(coordinator.control_peer, SayHello()):
        assert time.monotonic() < deadline
        coordinator.control.receive(0.01)
