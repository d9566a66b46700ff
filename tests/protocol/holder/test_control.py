"""The control thread over queues: what it says, when it dials anew, how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from message_examples import hello, run_experts, stage_exchange, welcome
from queue_lines import WITHIN_S, QueueLine

from protocol.errors import ConfigError, ExpertError
from protocol.holder import control as control_module
from protocol.holder import membership as membership_module
from protocol.holder.control import Control
from protocol.holder.membership import Membership
from protocol.holder.serve import Desk, Leave, Orders, Progress
from protocol.messages import (
    NO_RANK,
    Assign,
    AssignFailed,
    AssignProgress,
    AssignReady,
    Beat,
    BeatSeen,
    CommitExchange,
    ExchangeCommitted,
    ExchangeFailed,
    ExchangeStaged,
    Hello,
    Message,
    RunExperts,
    SayHello,
    Stop,
    Stopped,
    Sums,
)

pytestmark = pytest.mark.timeout(60)

LAYERS, EXPERTS = 3, 4


class Preparer:
    """Makes ready at once, or when it may; or breaks."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.raises: Exception | None = None
        self.discarded: list[tuple[int, int]] = []

    source_name = "mapped"

    def counts(self) -> dict[str, int]:
        return {"file_reads": 3}

    def tend(self, now: float) -> None:
        """Nothing is held."""

    def answer(self, work: RunExperts, wait_us: int) -> Sums:
        raise AssertionError("the compute loop is the test")

    def make_room(self, wanted: Any, in_force: Any, rank: Any) -> None:
        """There is any amount."""

    def prepare(self, layer: int, experts: Any) -> Iterator[None]:
        assert self.may_go_on.wait(WITHIN_S)
        if self.raises is not None:
            raise self.raises
        yield

    def stage(self, layer: int, leaves: int, comes: int) -> Iterator[None]:
        for _ in range(3):
            yield from self.prepare(layer, [comes])

    def discard(self, layer: int, expert: int) -> None:
        self.discarded.append((layer, expert))


class Worker:
    """A control thread and the lines it has dialled; the test is the coordinator and the compute loop."""

    def __init__(self, orphan_s: float = 60.0, dial: Callable[[], Any] | None = None) -> None:
        self.lines: list[QueueLine] = []
        self.dialled = threading.Semaphore(0)
        self.orders, self.progress, self.bank = Orders(), Progress(), Preparer()
        self.control = Control(
            Membership(hello(), endpoint="ipc://@c", orphan_s=orphan_s, now=control_module.time.monotonic()),
            dial=dial or self._dial,
            shape=(LAYERS, EXPERTS),
            bank=self.bank,
            orders=self.orders,
            progress=self.progress,
        )
        self.control.start()

    def _dial(self) -> QueueLine:
        self.lines.append(QueueLine())
        self.dialled.release()
        return self.lines[-1]

    def line(self) -> QueueLine:
        """The next connection it opens, once Hello was said on it."""
        assert self.dialled.acquire(timeout=WITHIN_S)
        line = self.lines[-1]
        assert isinstance(line.told(), Hello)
        return line

    def join(self, **changes: Any) -> QueueLine:
        """Welcome it with beats of 50 a second; returns the line."""
        line = self.line()
        line.tell(welcome(beat_s=0.02, **changes))
        desk = self.order()
        assert isinstance(desk, Desk)
        self.desk = desk
        return line

    def held(self, placement: int = 1, layer: int = 1) -> list[int]:
        """What the compute loop may be asked for."""
        found = self.desk.holdings.get(placement)
        assert found is not None
        return np.flatnonzero(found[layer]).tolist()

    def assign(self, line: QueueLine, **changes: Any) -> None:
        """Experts 0 and 1 of every layer, as placement 1."""
        held = np.zeros((LAYERS, EXPERTS), np.uint8)
        held[:, :2] = 1
        line.tell(Assign(**({"placement": 1, "in_force": 0, "held": held, "rank": NO_RANK} | changes)))
        next_of(line, AssignReady)

    def order(self) -> Desk | Leave | None:
        """What the compute loop is told next."""
        return self.orders.take(WITHIN_S)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.bank.may_go_on.set()
    worker.control.finish()
    assert not worker.control._thread.is_alive()


def next_of(line: QueueLine, kind: type[Message]) -> Any:
    """The next message of this class, others skipped."""
    while not isinstance(message := line.told(), kind):
        pass
    return message


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
    assert leave.code == 0
    worker.control.finish()


def test_an_answered_worker_is_no_orphan() -> None:
    worker = Worker(orphan_s=0.3)
    line = worker.join()
    for _ in range(30):
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


# --- exchanges ----------------------------------------------------------------------------------------------------


def test_an_exchange_is_staged_and_committed(worker: Worker) -> None:
    line = worker.join()
    worker.assign(line)
    assert next_of(line, Beat).residency == 1
    line.tell(stage_exchange())
    staged = next_of(line, ExchangeStaged)
    assert (staged.exchange, staged.residency, worker.held()) == (7, 2, [0, 1, 2])
    assert worker.bank.discarded == []
    line.tell(CommitExchange(exchange=7))
    committed = next_of(line, ExchangeCommitted)
    assert (committed.exchange, committed.residency, worker.held()) == (7, 3, [1, 2])
    assert worker.bank.discarded == [(1, 0)]
    assert next_of(line, Beat).residency == 3


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (stage_exchange(comes=1), "expert 1 of layer 1 is to come and is held already"),
        (CommitExchange(exchange=7), "exchange 7 is not staged here"),
    ],
)
def test_what_cannot_be_exchanged_is_refused_by_reason(worker: Worker, asked: Message, reason: str) -> None:
    line = worker.join()
    worker.assign(line)
    line.tell(asked)
    failed = next_of(line, ExchangeFailed)
    assert (failed.exchange, failed.reason) == (7, reason)
    assert (worker.held(), worker.bank.discarded) == ([0, 1], [])


def test_one_that_cannot_be_read_is_dropped_with_the_reason_and_the_worker_stays(worker: Worker) -> None:
    line = worker.join()
    worker.assign(line)
    worker.bank.raises = ExpertError(1, 2, "the disk is gone")
    line.tell(stage_exchange())
    assert next_of(line, ExchangeFailed).reason == "layer 1, expert 2: the disk is gone"
    assert (worker.held(), worker.bank.discarded) == ([0, 1], [(1, 2)])
    worker.bank.raises = None
    line.tell(stage_exchange())
    next_of(line, ExchangeStaged)


def test_beats_leave_while_one_is_read(worker: Worker) -> None:
    line = worker.join()
    worker.assign(line)
    line.told_so_far()
    worker.bank.stage = endless  # type: ignore[method-assign]
    line.tell(stage_exchange(within_s=60.0), CommitExchange(exchange=7))
    assert next_of(line, ExchangeFailed).reason == "expert 2 of layer 1 is not ready yet"
    for _ in range(3):
        assert next_of(line, Beat).residency == 1
    assert worker.held() == [0, 1]


def endless(layer: int, leaves: int, comes: int) -> Iterator[None]:
    """A disk that never comes to an end."""
    while True:
        yield


@pytest.mark.parametrize("ready", [True, False])
def test_what_is_not_committed_in_time_is_dropped_and_reported(worker: Worker, ready: bool) -> None:
    line = worker.join()
    worker.assign(line)
    if not ready:
        worker.bank.stage = endless  # type: ignore[method-assign]
    line.tell(stage_exchange(within_s=0.2))
    if ready:
        next_of(line, ExchangeStaged)
    failed = next_of(line, ExchangeFailed)
    assert (failed.exchange, failed.reason) == (7, "dropped: not committed within 0.2 s")
    assert (worker.held(), worker.bank.discarded) == ([0, 1], [(1, 2)])
    assert next_of(line, Beat).residency == (3 if ready else 1)
    line.tell(CommitExchange(exchange=7))
    assert next_of(line, ExchangeFailed).reason == "exchange 7 is not staged here"


def test_an_assignment_drops_what_is_staged(worker: Worker) -> None:
    line = worker.join()
    worker.assign(line)
    line.tell(stage_exchange(within_s=60.0))
    next_of(line, ExchangeStaged)
    line.tell(Assign(placement=2, in_force=1, held=np.ones((LAYERS, EXPERTS), np.uint8), rank=NO_RANK))
    assert next_of(line, ExchangeFailed).reason == "dropped: placement 2 was assigned"
    next_of(line, AssignReady)
    assert (worker.held(1), worker.held(2)) == ([0, 1], [0, 1, 2, 3])
    line.tell(stage_exchange(placement=1))
    assert next_of(line, ExchangeFailed).reason == "placement 1 is not the latest that was assigned here, which is 2"


@pytest.mark.parametrize("ready", [True, False])
def test_a_coordinator_that_died_after_staging_leaves_nothing_staged(worker: Worker, ready: bool) -> None:
    line = worker.join(session="s1")
    worker.assign(line)
    if not ready:
        worker.bank.stage = endless  # type: ignore[method-assign]
    line.tell(stage_exchange(within_s=60.0))
    if ready:
        next_of(line, ExchangeStaged)
    else:
        next_of(line, Beat)
    line.tell(BeatSeen(session="s2"))
    second = worker.line()
    assert (worker.held(), worker.bank.discarded) == ([0, 1], [(1, 2)]), "before anybody answers"
    second.tell(welcome(session="s2", beat_s=0.02))
    worker.desk = worker.order()
    assert next_of(second, Beat).residency == 0
    worker.assign(second)
    assert worker.held() == [0, 1]
    assert not [one for one in second.told_so_far() if isinstance(one, ExchangeFailed)], "it never asked"
    second.tell(CommitExchange(exchange=7))
    assert next_of(second, ExchangeFailed).reason == "exchange 7 is not staged here"


def test_another_membership_of_the_same_session_finds_nothing_staged_either(worker: Worker) -> None:
    line = worker.join()
    worker.assign(line)
    line.tell(stage_exchange(within_s=60.0))
    next_of(line, ExchangeStaged)
    line.tell(SayHello())
    second = worker.join(token="t2")
    assert worker.held() == [0, 1]
    assert next_of(second, Beat).residency == 3
    second.tell(stage_exchange())
    assert (
        next_of(second, ExchangeFailed).reason
        == "placement 1 is not the latest that was assigned here, where none was yet"
    )
