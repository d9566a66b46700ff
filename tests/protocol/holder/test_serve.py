"""The compute loop, over queues: every work answered once, in order; orders obeyed in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest
from message_examples import run_experts, sums
from queue_lines import WITHIN_S, QueueLine

from protocol.errors import ExpertError
from protocol.holder import serve as serve_module
from protocol.holder.holdings import Holdings
from protocol.holder.serve import Desk, Leave, Orders, Progress, compute
from protocol.messages import NO_RANK, Assign, BeatSeen, Message, OpenWork, RunExperts, SayHello, Stop, Sums, WorkFailed

pytestmark = pytest.mark.timeout(60)

BYE = Leave(code=0, reason="test")


class FakeBank:
    """Gives some sums; fails, or breaks, on request."""

    def __init__(self) -> None:
        self.raises: Exception | None = None
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()

    def answer(self, work: RunExperts, wait_us: int) -> Sums:
        self.begun.set()
        assert self.may_end.wait(WITHIN_S)
        if self.raises is not None:
            raise self.raises
        return sums(session=work.session, step=work.step, layer=work.layer, attempt=work.attempt, wait_us=wait_us)


class Loop:
    """The compute loop in a thread, and the lines it has dialled."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.orders, self.progress, self.bank = Orders(), progress or Progress(), FakeBank()
        self.lines: dict[str, QueueLine] = {}
        self.left: Leave | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.left = compute(self.orders, self._dial, self.bank, self.progress)
        except BaseException as error:
            self.error = error

    def _dial(self, endpoint: str) -> QueueLine:
        return self.lines.setdefault(endpoint, QueueLine())

    def desk(self, endpoint: str = "w1", session: str = "s1", token: str = "t1", placement: int = 1) -> QueueLine:
        """Give it a desk that holds everything under one placement, and wait until it has taken it."""
        holdings = Holdings()
        holdings.add(Assign(placement=placement, in_force=0, held=np.ones((2, 4), np.uint8), rank=NO_RANK))
        line = self.lines.setdefault(endpoint, QueueLine())
        self.orders.give(Desk(session=session, token=token, work=endpoint, holdings=holdings))
        opened = line.told()
        assert isinstance(opened, OpenWork)
        assert opened.token == token
        return line

    def end(self) -> None:
        self.bank.may_end.set()
        self.orders.give(BYE)
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.end()


def answer_of(line: QueueLine) -> Message:
    """The next thing said that is not OpenWork."""
    while isinstance(message := line.told(), OpenWork):
        pass
    return message


def test_work_is_answered_once_and_in_order(loop: Loop) -> None:
    line = loop.desk()
    line.tell(*(run_experts(step=step) for step in range(5)))
    replies = [answer_of(line) for _ in range(5)]
    assert all(isinstance(reply, Sums) for reply in replies)
    assert [reply.step for reply in replies if isinstance(reply, Sums)] == list(range(5))
    loop.end()
    assert not [message for message in line.told_so_far() if not isinstance(message, OpenWork)]


def test_progress_counts_what_was_done(loop: Loop) -> None:
    line = loop.desk()
    line.tell(run_experts(step=4, layer=0), run_experts(rows=3, step=5, layer=1))
    answer_of(line)
    answer_of(line)
    loop.end()
    done = loop.progress
    assert (done.step, done.layer, done.calls, done.entries) == (5, 1, 2, 2 + 6)
    assert done.busy_us >= 0
    assert done.wait_us >= 0


class Looked(Progress):
    """Looked at, as a beat may be made at any moment, just when a call more is counted."""

    seen: ClassVar[list[tuple[int, int, int]]] = []

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "calls" and value:
            self.seen.append((self.step, self.layer, self.entries))


def test_a_call_that_is_counted_is_told_of_whole() -> None:
    loop = Loop(Looked())
    line = loop.desk()
    line.tell(run_experts(step=4, layer=0), run_experts(rows=3, step=5, layer=1))
    answer_of(line)
    answer_of(line)
    loop.end()
    assert Looked.seen == [(4, 0, 2), (5, 1, 8)]


def test_an_expert_error_is_an_answer_and_the_loop_goes_on(loop: Loop) -> None:
    line = loop.desk()
    loop.bank.raises = ExpertError(1, 2, "the disk is gone")
    line.tell(run_experts())
    failed = answer_of(line)
    assert isinstance(failed, WorkFailed)
    assert failed.expert == 2
    assert failed.reason == "layer 1, expert 2: the disk is gone"
    loop.bank.raises = None
    line.tell(run_experts())
    assert isinstance(answer_of(line), Sums)
    assert (loop.progress.calls, loop.progress.entries) == (2, 2)


def test_any_other_exception_ends_the_loop(loop: Loop) -> None:
    line = loop.desk()
    loop.bank.raises = ZeroDivisionError("a mistake")
    line.tell(run_experts())
    loop._thread.join(WITHIN_S)
    assert isinstance(loop.error, ZeroDivisionError)
    assert line.closed


def test_an_unknown_placement_fails(loop: Loop) -> None:
    line = loop.desk(placement=3)
    for placement, kind in ((2, WorkFailed), (4, WorkFailed), (3, Sums)):
        line.tell(run_experts(placement=placement))
        assert isinstance(answer_of(line), kind)


def test_a_new_desk_has_answered_nothing_yet(loop: Loop) -> None:
    line, done = loop.desk(), loop.progress
    line.tell(run_experts(step=5))
    answer_of(line)
    assert (done.step, done.layer) == (5, 1)
    second = loop.desk("w2", session="s2")  # another life of the coordinator numbers its steps anew
    assert (done.step, done.layer, done.calls) == (-1, -1, 1)
    second.tell(run_experts(session="s2", step=0, layer=0))
    answer_of(second)
    assert (done.step, done.layer, done.calls) == (0, 0, 2)


def test_what_is_no_work_of_this_session_is_dropped_and_counted(loop: Loop) -> None:
    line = loop.desk()
    line.dropped = 2  # malformed ones, which the socket counts
    line.tell(run_experts(session="another"), Stop(), BeatSeen(session="s1"), SayHello(), run_experts())
    assert isinstance(answer_of(line), Sums)
    assert loop.progress.misdirected == 3
    assert loop.progress.malformed == 2
    assert loop.progress.calls == 1
    second = loop.desk("w2")
    second.dropped = 1
    second.tell(run_experts())
    answer_of(second)
    assert loop.progress.malformed == 3


def test_a_new_seat_replaces_the_old_connection(loop: Loop) -> None:
    first = loop.desk("w1", token="t1")
    second = loop.desk("w2", session="s2", token="t2")
    assert first.closed
    assert first.flushed_s == 0
    second.tell(run_experts(session="s2"))
    assert isinstance(answer_of(second), Sums)


def test_work_in_hand_is_finished_and_answered_before_an_order_is_followed(loop: Loop) -> None:
    line = loop.desk()
    loop.bank.may_end.clear()
    line.tell(run_experts())
    assert loop.bank.begun.wait(WITHIN_S)
    loop.orders.give(BYE)
    loop.bank.may_end.set()
    assert isinstance(answer_of(line), Sums)
    loop._thread.join(WITHIN_S)
    assert loop.left is BYE
    assert line.closed
    assert line.flushed_s > 0


def test_it_can_be_told_to_leave_before_it_has_a_seat(loop: Loop) -> None:
    loop.end()
    assert loop.left is BYE


def test_only_the_latest_seat_counts_and_leaving_is_final() -> None:
    orders = Orders()
    desks = [Desk(session="s", token=str(n), work="w", holdings=Holdings()) for n in range(3)]
    for desk in desks:
        orders.give(desk)
    assert orders.take() is desks[-1]
    assert orders.take() is None
    orders.give(desks[0])
    orders.give(BYE)
    orders.give(desks[1])
    assert orders.take() is BYE


def test_open_work_is_repeated_while_there_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "OPEN_AGAIN_S", 0.02)
    monkeypatch.setattr(serve_module, "ORDERS_S", 0.01)
    loop = Loop()
    try:
        line = loop.desk()
        for _ in range(3):
            assert isinstance(line.told(), OpenWork)
        line.tell(run_experts())
        assert isinstance(answer_of(line), Sums)
        assert isinstance(line.told(), OpenWork)
    finally:
        loop.end()
