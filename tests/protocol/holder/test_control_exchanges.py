"""The control thread exchanges an expert for another: staged, committed, dropped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from control_thread import EXPERTS, LAYERS, Worker, next_of
from message_examples import stage_exchange, welcome

from protocol.errors import ExpertError
from protocol.messages import (
    NO_RANK,
    Assign,
    AssignReady,
    Beat,
    BeatSeen,
    CommitExchange,
    ExchangeCommitted,
    ExchangeFailed,
    ExchangeStaged,
    Message,
    SayHello,
)

pytestmark = pytest.mark.timeout(60)


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
    line.tell(stage_exchange(within_s=1.0))
    if ready:
        next_of(line, ExchangeStaged)
    failed = next_of(line, ExchangeFailed)
    assert (failed.exchange, failed.reason) == (7, "dropped: not committed within 1 s")
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
