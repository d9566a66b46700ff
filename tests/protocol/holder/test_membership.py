"""How a worker joins, stays and leaves: pure, with a clock of our own."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from message_examples import hello, run_experts, stage_exchange, welcome

from protocol.holder.holdings import Holdings
from protocol.holder.membership import (
    HELLO_AGAIN_S,
    SILENCE_S,
    Exchange,
    Greet,
    Instruction,
    Membership,
    Prepare,
    SendBeat,
)
from protocol.holder.serve import Desk, Leave
from protocol.messages import (
    NO_EXPERTS,
    NO_RANK,
    U8,
    Assign,
    BeatSeen,
    CommitExchange,
    Hello,
    Message,
    OpenWork,
    Refused,
    SayHello,
    Stop,
    Token,
)

HELLO = hello()
HELD: U8 = np.ones((2, 4), np.uint8)
ORPHAN_S = 60.0


def says(instructions: list[Instruction], hello: Hello, held: U8 = NO_EXPERTS) -> bool:
    """Whether it is told to say this Hello, and nothing else, with so much that it `held` (layers, experts)."""
    [greet] = instructions
    if not isinstance(greet, Greet):
        return False
    fields = [field.name for field in dataclasses.fields(Hello) if field.name != "held"]
    same = all(getattr(greet.hello, field) is getattr(hello, field) for field in fields)
    return same and np.array_equal(greet.hello.held, held)


@pytest.fixture
def fresh() -> Membership:
    """Has said Hello at time 0."""
    membership = Membership(HELLO, endpoint="ipc://@c", orphan_s=ORPHAN_S, now=0.0)
    assert says(membership.greet(0.0), HELLO)
    return membership


@pytest.fixture
def member(fresh: Membership) -> Membership:
    """Was welcomed at time 0, and has sent its first beat."""
    [desk] = fresh.hear(welcome(), 0.0)
    assert isinstance(desk, Desk)
    [beat] = fresh.tick(0.0)
    assert beat == SendBeat(token="t1")
    return fresh


class Passing:
    """Lets time pass in small steps, and notes what is instructed when."""

    def __init__(self, membership: Membership, now: float = 0.0) -> None:
        self.membership, self.now = membership, now
        self.seen: list[tuple[float, Instruction]] = []

    def until(self, end: float, step: float = 0.25) -> list[Instruction]:
        """What is instructed from now to `end`, not included."""
        before = len(self.seen)
        while self.now + step < end:
            self.now += step
            self.seen += [(self.now, one) for one in self.membership.tick(self.now)]
        return [one for _, one in self.seen[before:]]

    def at(self, now: float) -> list[Instruction]:
        """What is instructed at that very moment."""
        self.now = now
        return self.membership.tick(now)


def kinds(instructions: list[Instruction]) -> set[str]:
    return {type(instruction).__name__ for instruction in instructions}


def test_a_welcome_gives_the_compute_loop_its_seat(fresh: Membership) -> None:
    assert not fresh.joined
    [desk] = fresh.hear(welcome(session="s", token="t", work="ipc://@w"), 1.0)
    assert isinstance(desk, Desk)
    assert (desk.session, desk.token, desk.work) == ("s", "t", "ipc://@w")
    assert fresh.joined


def test_beats_are_sent_at_once_and_then_at_the_interval(member: Membership) -> None:
    assert member.due_s() == 0.5
    assert member.tick(0.49) == []
    assert member.due_s() == pytest.approx(0.01)
    assert member.tick(0.6) == [SendBeat(token="t1")]
    assert member.due_s() == pytest.approx(0.5)


def test_a_pause_of_this_process_does_not_cause_a_burst_of_beats(member: Membership) -> None:
    assert member.tick(5.0) == [SendBeat(token="t1")]
    assert member.tick(5.0) == []


def test_a_hello_without_an_answer_is_repeated_on_a_fresh_connection(fresh: Membership) -> None:
    passing = Passing(fresh)
    assert fresh.due_s() == HELLO_AGAIN_S
    for times in (1, 2, 3):
        assert passing.until(times * HELLO_AGAIN_S) == []
        assert says(passing.at(times * HELLO_AGAIN_S), HELLO)


def test_a_refusal_ends_it_with_every_mismatch(fresh: Membership) -> None:
    wrong = [["protocol", "2", "1"], ["fingerprint", "aa", "bb"]]
    [leave] = fresh.hear(Refused(mismatches=wrong), 0.1)
    assert isinstance(leave, Leave)
    assert leave.code == 2
    assert (
        leave.reason == "the coordinator at ipc://@c refused: protocol is 2, expected 1; fingerprint is aa, expected bb"
    )


def test_stop_ends_it_in_order_joined_or_not(fresh: Membership) -> None:
    [leave] = fresh.hear(Stop(), 0.1)
    assert isinstance(leave, Leave)
    assert leave.code == 0
    fresh.hear(welcome(), 0.2)
    assert kinds(fresh.hear(Stop(), 0.3)) == {"Leave"}


@pytest.mark.parametrize("message", [SayHello(), BeatSeen(session="another")])
def test_a_coordinator_that_does_not_know_it_gets_another_hello(member: Membership, message: Message) -> None:
    assert says(member.hear(message, 1.0), HELLO)
    assert not member.joined
    assert member.hear(SayHello(), 1.1) == []  # one answer is enough
    assert member.tick(1.2) == []  # no beats until it is welcome again
    [desk] = member.hear(welcome(token="t2"), 1.3)
    assert isinstance(desk, Desk)
    assert desk.token == "t2"
    assert member.tick(1.3) == [SendBeat(token="t2")]


def test_silence_leads_to_another_hello_although_beats_can_be_sent(member: Membership) -> None:
    passing = Passing(member)
    assert kinds(passing.until(SILENCE_S)) == {"SendBeat"}
    assert says(passing.at(SILENCE_S), HELLO)


def test_beats_that_are_seen_keep_it_going(member: Membership) -> None:
    passing = Passing(member)
    for second in range(1, 200):
        assert kinds(passing.until(float(second))) <= {"SendBeat"}
        assert member.hear(BeatSeen(session="s1"), passing.now) == []
    assert len(passing.seen) > 300


def test_other_words_of_the_coordinator_do_not_make_up_for_unseen_beats(member: Membership) -> None:
    passing = Passing(member)
    passing.until(SILENCE_S)
    member.hear(Assign(placement=1, in_force=0, held=HELD, rank=NO_RANK), passing.now)
    assert kinds(passing.at(SILENCE_S)) == {"Greet"}


@pytest.mark.parametrize("joined", [False, True])
def test_a_coordinator_that_is_gone_for_good_is_left(joined: bool) -> None:
    membership = Membership(HELLO, endpoint="ipc://@c", orphan_s=5.0, now=100.0)
    membership.greet(100.0)
    if joined:
        membership.hear(welcome(), 100.0)
    passing = Passing(membership, 100.0)
    assert "Leave" not in kinds(passing.until(105.0))
    assert membership.due_s() <= 0.25
    [leave] = passing.at(105.0)
    assert isinstance(leave, Leave)
    assert leave.code == (1 if joined else 2)  # to find none at all is not what was asked for
    assert "5 s" in leave.reason


def test_a_coordinator_that_answers_hello_with_say_hello_is_not_gone(fresh: Membership) -> None:
    passing = Passing(fresh)
    passing.until(ORPHAN_S - 1)
    fresh.hear(SayHello(), passing.now)
    assert "Leave" not in kinds(passing.until(2 * ORPHAN_S - 2))
    assert "Leave" in kinds(passing.until(2 * ORPHAN_S))


def test_time_in_which_it_was_stopped_does_not_count(member: Membership) -> None:
    assert kinds(member.tick(1000.0)) == {"SendBeat"}
    assert kinds(Passing(member, 1000.0).until(1000.0 + SILENCE_S - 1)) == {"SendBeat"}


@pytest.mark.parametrize("message", [stage_exchange(), CommitExchange(exchange=7)])
def test_an_exchange_is_for_members(message: Message) -> None:
    worker = Membership(HELLO, endpoint="ipc://@c", orphan_s=ORPHAN_S, now=0.0)
    worker.greet(0.0)
    assert worker.hear(message, 0.1) == []
    assert worker.dropped == 1
    worker.hear(welcome(), 0.2)
    [exchange] = worker.hear(message, 0.3)
    assert isinstance(exchange, Exchange)
    assert exchange.asked is message


def test_its_time_is_that_in_which_it_listened(member: Membership) -> None:
    member.tick(0.5)
    assert member.time == 0.5
    member.tick(100.5)  # it was stopped
    assert member.time == 1.5


def test_an_assignment_belongs_to_the_session(member: Membership) -> None:
    [first] = member.hear(Assign(placement=1, in_force=0, held=HELD, rank=NO_RANK), 0.1)
    assert isinstance(first, Prepare)
    member.hear(SayHello(), 0.2)
    [again] = member.hear(welcome(token="t2"), 0.3)
    assert isinstance(again, Desk)
    assert again.holdings is first.holdings  # the same session numbers the same placements
    member.hear(SayHello(), 0.4)
    [other] = member.hear(welcome(session="s2"), 0.5)
    assert isinstance(other, Desk)
    assert isinstance(other.holdings, Holdings)
    assert other.holdings is not first.holdings
    [second] = member.hear(Assign(placement=1, in_force=0, held=HELD, rank=NO_RANK), 0.6)
    assert isinstance(second, Prepare)
    assert second.holdings is other.holdings


def test_another_hello_says_what_it_holds_until_another_session_has_something_ready(member: Membership) -> None:
    [prepare] = member.hear(Assign(placement=1, in_force=0, held=HELD, rank=NO_RANK), 0.1)
    assert isinstance(prepare, Prepare)
    assert says(member.hear(SayHello(), 0.2), HELLO), "it was not ready yet"
    member.hear(welcome(token="t2"), 0.3)
    prepare.holdings.add(prepare.assign)
    for session in ("s1", "s2", "s3"):
        assert says(member.hear(SayHello(), 0.4), HELLO, HELD)
        [desk] = member.hear(welcome(session=session), 0.5)
        assert isinstance(desk, Desk)
    assert desk.holdings.get(1) is None
    less = HELD.copy()
    less[0] = 0
    desk.holdings.add(Assign(placement=1, in_force=0, held=less, rank=NO_RANK))
    assert says(member.hear(SayHello(), 0.6), HELLO, less)


@pytest.mark.parametrize(
    "message",
    [
        hello(),
        OpenWork(token="t"),
        run_experts(),
        Token(request="r", index=0, id=1, sha256_logits="", elapsed_us=0),
    ],
)
def test_what_a_worker_does_not_take_is_counted(member: Membership, message: Message) -> None:
    assert member.hear(message, 0.1) == []
    assert member.dropped == 1


@pytest.mark.parametrize("message", [BeatSeen(session="s1"), Assign(placement=1, in_force=0, held=HELD, rank=NO_RANK)])
def test_before_a_welcome_there_is_nothing_to_do(fresh: Membership, message: Message) -> None:
    assert fresh.hear(message, 0.1) == []
    assert fresh.dropped == 1


def test_the_round_trip_is_the_least_of_the_last_beats(member: Membership) -> None:
    now, seen = 0.0, []
    for took in [0.25, 0.25, 0.003, 0.25, 0.125, 0.125, 0.125]:
        member.hear(BeatSeen(session="s1"), now + took)
        seen.append(member.round_trip_us)
        now += took + 0.01
        member.hear(BeatSeen(session="s1"), now)  # a probe: no beat was waiting for an answer
        while not any(isinstance(one, SendBeat) for one in member.tick(now)):
            now += 0.1
    assert seen == [-1, -1, -1, 3000, 3000, 3000, 125000]
