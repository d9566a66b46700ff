"""The control thread over queues: what it says, when it dials anew, how it ends."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from control_thread import EXPERTS, LAYERS, Worker, next_of
from message_examples import run_experts
from queue_lines import WITHIN_S, QueueLine

from protocol.errors import ConfigError
from protocol.holder import control as control_module
from protocol.holder import membership as membership_module
from protocol.holder.serve import Leave
from protocol.messages import (
    NO_RANK,
    Assign,
    AssignFailed,
    AssignProgress,
    AssignReady,
    Beat,
    BeatSeen,
    SayHello,
    Stop,
    Stopped,
)

pytestmark = pytest.mark.timeout(60)


def test_beats_carry_the_progress_of_the_compute_loop(worker: Worker) -> None:
    line = worker.join(token="t9")
    first = next_of(line, Beat)
    assert (first.token, first.step, first.calls) == ("t9", -1, 0)
    assert first.resident_bytes > 1 << 20
    assert (first.source, first.tiers) == ("mapped", {"file_reads": 3})
    done = worker.progress
    done.step, done.layer, done.calls, done.entries, done.busy_us, done.wait_us = 5, 2, 7, 11, 13, 17
    done.misdirected, done.malformed, line.dropped = 1, 2, 3
    line.tell(run_experts())  # nothing for control: one more
    while (beat := next_of(line, Beat)).dropped < 7:
        pass
    assert (beat.step, beat.layer, beat.calls, beat.entries, beat.busy_us, beat.wait_us) == (5, 2, 7, 11, 13, 17)
    assert beat.dropped == 7


def test_an_assignment_is_reported_layer_by_layer(worker: Worker) -> None:
    line = worker.join()
    line.tell(Assign(placement=4, in_force=0, held=np.ones((LAYERS, EXPERTS), np.uint8), rank=NO_RANK))
    assert [next_of(line, AssignProgress).done for _ in range(LAYERS)] == [1, 2, 3]
    ready = next_of(line, AssignReady)
    assert (ready.placement, ready.experts) == (4, LAYERS * EXPERTS)


def test_a_newer_assignment_replaces_one_that_is_not_ready(worker: Worker) -> None:
    line = worker.join()
    worker.bank.may_go_on.clear()
    line.tell(Assign(placement=4, in_force=0, held=np.ones((LAYERS, EXPERTS), np.uint8), rank=NO_RANK))
    line.tell(Assign(placement=5, in_force=0, held=np.zeros((LAYERS, EXPERTS), np.uint8), rank=NO_RANK))
    worker.bank.may_go_on.set()
    ready = next_of(line, AssignReady)
    assert (ready.placement, ready.experts) == (5, 0)


def test_an_assignment_of_another_shape_fails_and_the_worker_stays(worker: Worker) -> None:
    line = worker.join()
    line.tell(Assign(placement=4, in_force=0, held=np.ones((1, 1), np.uint8), rank=NO_RANK))
    failed = next_of(line, AssignFailed)
    assert failed.placement == 4
    assert "(1, 1)" in failed.reason
    next_of(line, Beat)


def test_say_hello_leads_to_hello_on_a_fresh_connection(worker: Worker) -> None:
    first = worker.join(token="t1")
    first.dropped = 5
    first.tell(SayHello())
    second = worker.join(token="t2")
    assert first.closed
    assert first.flushed_s == 0
    beat = next_of(second, Beat)
    assert beat.token == "t2"
    assert beat.dropped == 5  # what the closed connection counted still counts


def test_a_hello_without_an_answer_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_module, "HELLO_AGAIN_S", 0.05)
    worker = Worker()
    first, second = worker.line(), worker.line()
    assert first.closed
    worker.control.finish()
    assert second.closed
    assert not second.told_so_far()  # it was nobody's member, so it does not take its leave


def test_stop_is_passed_on_and_answered_when_the_compute_loop_has_ended(worker: Worker) -> None:
    line = worker.join()
    line.tell(Stop())
    leave = worker.order()
    assert isinstance(leave, Leave)
    assert leave.code == 0
    next_of(line, Beat)  # the compute loop is still at it
    assert not line.closed
    worker.control.finish()
    assert isinstance(line.told_so_far()[-1], Stopped)
    assert line.flushed_s > 0


def test_an_orphan_leaves() -> None:
    worker = Worker(orphan_s=0.1)
    worker.join()
    leave = worker.order()
    assert isinstance(leave, Leave)
    assert leave.code == 1
    worker.control.finish()


def test_an_answered_worker_is_no_orphan() -> None:
    worker = Worker(orphan_s=1.0)
    line = worker.join()
    for _ in range(75):
        next_of(line, Beat)
        line.tell(BeatSeen(session="s1"))
    assert worker.orders.take() is None
    worker.control.finish()


def test_an_endpoint_that_cannot_be_dialled_is_a_sentence() -> None:
    def dial() -> QueueLine:
        raise ConfigError("endpoint 'x': nothing there")

    worker = Worker(dial=dial)
    assert worker.order() == Leave(code=2, reason="endpoint 'x': nothing there")
    worker.control.finish()


def test_a_mistake_in_the_thread_ends_the_process(worker: Worker) -> None:
    line = worker.join()
    worker.bank.raises = ZeroDivisionError("a mistake")
    line.tell(Assign(placement=1, in_force=0, held=np.ones((LAYERS, EXPERTS), np.uint8), rank=NO_RANK))
    assert worker.order() == Leave(code=1, reason="ZeroDivisionError: a mistake")


def test_a_compute_loop_that_is_stuck_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exit(BaseException):
        pass

    def leave_at_once(code: int) -> None:
        codes.append(code)
        raise Exit

    codes: list[int] = []
    monkeypatch.setattr(control_module, "LEAVE_S", 0.05)
    monkeypatch.setattr(control_module.os, "_exit", leave_at_once)
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    worker = Worker()
    line = worker.join()
    line.tell(Stop())
    worker.control._thread.join(WITHIN_S)
    assert codes == [1]
    assert line.closed
