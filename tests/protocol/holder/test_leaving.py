"""How a worker that is to leave goes about it: pure, with a clock of our own."""

from __future__ import annotations

import pytest
from message_examples import hello, welcome

from protocol.holder.membership import DRAIN_S, DRAIN_SILENCE_S, AskToDrain, Instruction, Membership
from protocol.holder.serve import Desk, Leave
from protocol.messages import BeatSeen, Drain, SayHello, Stop


@pytest.fixture
def member() -> Membership:
    """Was welcomed at time 0."""
    membership = Membership(hello(name="box-0"), endpoint="ipc://@c", orphan_s=60.0, now=0.0)
    membership.greet(0.0)
    membership.hear(welcome(), 0.0)
    return membership


def leaves(instructions: list[Instruction]) -> list[Leave]:
    return [one for one in instructions if isinstance(one, Leave)]


def asks(instructions: list[Instruction]) -> list[Drain]:
    return [one.drain for one in instructions if isinstance(one, AskToDrain)]


def until(member: Membership, begin: float, end: float, *, answered: bool) -> list[tuple[float, Leave]]:
    """Leaves that time brings, and when; beats are answered or not."""
    found, now = [], begin
    while now < end:
        if answered:
            member.hear(BeatSeen(session="s1"), now)
        found += [(now, one) for one in leaves(member.tick(now))]
        assert member.due_s() <= 0.51 or found
        now += 0.1
    return found


def test_it_asks_under_its_own_name_and_waits_for_stop(member: Membership) -> None:
    assert [one.name for one in asks(member.drain("SIGTERM", 1.0))] == ["box-0"]
    assert until(member, 1.0, 10.0, answered=True) == []
    assert member.hear(Stop(), 10.0) == [Leave(code=0, reason="SIGTERM, and others hold its experts")]


def test_it_does_not_wait_for_a_coordinator_that_says_nothing(member: Membership) -> None:
    until(member, 0.0, 5.0, answered=True)
    member.drain("SIGTERM", 5.0)
    (when, leave), *_ = until(member, 5.0, 9.0, answered=False)
    assert when == pytest.approx(5.0 + DRAIN_SILENCE_S, abs=0.11)
    assert leave == Leave(code=0, reason="SIGTERM, and the coordinator says nothing for 1 s")


def test_it_does_not_wait_for_ever(member: Membership) -> None:
    member.drain("SIGTERM", 0.0)
    (when, leave), *_ = until(member, 0.0, 30.0, answered=True)
    assert when == pytest.approx(DRAIN_S, abs=0.11)
    assert leave == Leave(code=0, reason="SIGTERM, and others do not hold its experts within 20 s")


def test_nobodys_member_leaves_at_once() -> None:
    membership = Membership(hello(), endpoint="ipc://@c", orphan_s=60.0, now=0.0)
    membership.greet(0.0)
    assert membership.drain("SIGTERM", 1.0) == [Leave(code=0, reason="SIGTERM")]


def test_with_no_time_to_drain_it_leaves_at_once() -> None:
    membership = Membership(hello(), endpoint="ipc://@c", orphan_s=60.0, drain_s=0.0, now=0.0)
    membership.greet(0.0)
    membership.hear(welcome(), 0.0)
    assert membership.drain("SIGTERM", 1.0) == [Leave(code=0, reason="SIGTERM")]


def test_a_new_membership_is_told_too(member: Membership) -> None:
    member.drain("SIGTERM", 1.0)
    member.hear(SayHello(), 1.1)
    desk, ask = member.hear(welcome(session="s2", token="t2"), 1.2)
    assert isinstance(desk, Desk)
    assert isinstance(ask, AskToDrain)
