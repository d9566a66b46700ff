"""Leaving in order: others hold its experts before a member goes; fed by hand, no socket, no clock."""

from __future__ import annotations

import numpy as np
import pytest
from bare_members import beat, hello, join, lost, make_ready, members, pass_time, say, told

from coordinator.draining import MAX_WAITING
from coordinator.member import Instructions, Member, State
from coordinator.members import Members
from coordinator.plan import LOCAL
from protocol.messages import (
    Assign,
    AssignFailed,
    AssignProgress,
    AssignReady,
    Drain,
    Drained,
    OpenWork,
    SayHello,
    Stop,
    Stopped,
    Welcome,
)

CLIENT = b"client"


def two() -> tuple[Members, Member, Member]:
    """Two workers that compute, and a client that was welcomed."""
    mesh = members(expected=2)
    first, _ = join(mesh, "a")
    second, _ = join(mesh, "b")
    make_ready(mesh)
    mesh.tick(0.0)
    return mesh, first, second


def released(mesh: Members, member: Member) -> bool:
    """Whether it is told to leave now."""
    return bool(told(mesh.tick(0.0), Stop, member.control))


@pytest.mark.parametrize("by_itself", [False, True])
def test_it_leaves_once_the_placement_without_it_is_in_force(by_itself: bool) -> None:
    mesh, first, second = two()
    before = mesh.assignment.active
    done = say(mesh, first, Drain(name="a")) if by_itself else mesh.drain(CLIENT, "a")
    assert told(done, Assign, first.control) == []
    assert told(done, Assign, second.control)[0].held.all()
    assert mesh.state(first) is State.DRAINING
    assert mesh.assignment.active is before, "it computes as before"
    assert not released(mesh, first)
    make_ready(mesh)
    assert (mesh.assignment.active.owner == second.serial).all()
    assert released(mesh, first)
    assert not released(mesh, first), "it was told"
    done = say(mesh, first, Stopped())
    assert lost(done) == [("a", "was drained")]
    assert told(done, Assign) == []
    answers = [(one.name, one.reason) for one in told(done, Drained, CLIENT)]
    assert answers == ([] if by_itself else [("a", "")])
    assert mesh.state(first) is State.GONE
    assert mesh.gone["a"] == (first, "was drained")


def test_the_last_ones_experts_are_left_to_the_local_bank() -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    make_ready(mesh)
    assert told(mesh.drain(CLIENT, "a"), Assign) == []
    assert (mesh.assignment.active.owner == member.serial).all()
    assert not released(mesh, member)
    assert mesh.assignment.switch()
    assert (mesh.assignment.active.owner == LOCAL).all()
    assert released(mesh, member)


def test_all_may_be_drained_at_once() -> None:
    mesh, first, second = two()
    mesh.drain(CLIENT, "a")
    mesh.drain(CLIENT, "b")
    assert (mesh.assignment.active.owner != LOCAL).all()
    assert mesh.assignment.switch()
    assert len(told(mesh.tick(0.0), Stop)) == 2
    assert [told(say(mesh, one, Stopped()), Drained)[0].name for one in (first, second)] == ["a", "b"]


def test_who_is_not_there_cannot_leave() -> None:
    mesh, first, _ = two()
    assert told(mesh.drain(CLIENT, "c"), Drained, CLIENT)[0].reason == "nobody is called that; there: a, b"
    say(mesh, first, Stopped())
    (drained,) = told(mesh.drain(CLIENT, "a"), Drained, CLIENT)
    assert drained.reason == "nobody is called that any more: it left of its own will; there: b"
    assert told(members().drain(CLIENT, "x"), Drained)[0].reason == "nobody is called that; there: nobody"


def test_who_is_lost_before_others_hold_its_experts_has_not_left_in_order() -> None:
    mesh, first, _ = two()
    mesh.drain(CLIENT, "a")
    mesh.drain(b"other", "a")
    done = mesh.unroutable(first.control)
    why = "it was lost before others held its experts: its connection is closed or full"
    assert [one.reason for one in told(done, Drained)] == [why, why]
    assert mesh.state(first) is State.LOST
    make_ready(mesh)


def test_if_who_was_to_take_over_cannot_the_local_bank_does() -> None:
    mesh, first, second = two()
    mesh.drain(CLIENT, "a")
    assert mesh.assignment.target is not None
    say(mesh, second, AssignFailed(placement=mesh.assignment.target.version, reason="disk error"))
    assert not released(mesh, first)
    assert mesh.assignment.switch()
    assert (mesh.assignment.active.owner == LOCAL).all()
    assert released(mesh, first)


def test_who_says_hello_anew_is_still_to_leave() -> None:
    mesh, _, _ = two()
    mesh.drain(CLIENT, "a")
    done = mesh.hello(b"again", hello("a"))
    assert told(done, Drained) == []
    (welcome,) = told(done, Welcome, b"again")
    assert told(mesh.open_work(b"again-work", OpenWork(token=welcome.token)), Assign, b"again") == []
    member = mesh.of_control(b"again")
    assert member is not None
    assert mesh.state(member) is State.DRAINING
    assert released(mesh, member), "nothing is left to it by now"
    assert [one.reason for one in told(say(mesh, member, Stopped()), Drained, CLIENT)] == [""]


def test_its_next_life_is_a_member_like_any_other() -> None:
    mesh, first, second = two()
    mesh.drain(CLIENT, "a")
    make_ready(mesh)
    assert released(mesh, first)
    say(mesh, first, Stopped())
    again, done = join(mesh, "a", "second-life")
    assert told(done, Assign, again.control)
    make_ready(mesh)
    assert mesh.state(again) is State.READY
    assert set(mesh.assignment.active.members) == {second.serial, again.serial}


def test_one_that_has_nothing_yet_leaves_at_once() -> None:
    mesh, _, _ = two()
    before = mesh.assignment.active
    newcomer, done = join(mesh, "c")
    assert told(done, Assign, newcomer.control)
    assert told(mesh.drain(CLIENT, "c"), Assign) == []
    assert mesh.assignment.target is None
    assert mesh.assignment.active is before
    assert released(mesh, newcomer)


def test_a_lookahead_process_leaves_at_once() -> None:
    mesh, _, _ = two()
    mesh.hello(b"l", hello("lookahead", role="lookahead", room=0))
    before = mesh.assignment.active
    assert mesh.drain(CLIENT, "lookahead") == []
    assert told(mesh.tick(0.0), Stop, b"l")
    assert mesh.assignment.active is before


def test_a_worker_speaks_for_itself_only() -> None:
    mesh, first, second = two()
    assert say(mesh, first, Drain(name="b")) == []
    assert not first.draining
    assert not second.draining
    assert told(mesh.from_worker(b"stranger", Drain(name="a"), 0.0), SayHello)


def test_asking_often_costs_nothing() -> None:
    mesh, first, _ = two()
    mesh.drain(CLIENT, "a")
    for number in range(100):
        assert mesh.drain(str(number).encode(), "a") == []
        assert mesh.drain(CLIENT, "a") == []
    assert len(first.drained_for) == MAX_WAITING


def test_who_is_to_leave_is_given_up_when_it_is_silent() -> None:
    mesh, _, second = two()
    mesh.drain(CLIENT, "a")
    done: Instructions = []
    for turn in range(40):
        say(mesh, second, beat(second.token))
        done += mesh.tick(0.1 * turn)
    assert lost(done) == [("a", "silent for 3.1 s")]
    assert told(done, Drained, CLIENT)


def test_states_follow_a_member_through_its_life() -> None:
    mesh = members(expected=1)
    control = b"a-control"
    (welcome,) = told(mesh.hello(control, hello("a")), Welcome)
    member = mesh.of_control(control)
    assert member is not None
    states = [mesh.state(member)]
    mesh.open_work(b"a-work", OpenWork(token=welcome.token))
    states.append(mesh.state(member))
    say(mesh, member, AssignProgress(placement=1, done=1, total=3))
    states.append(mesh.state(member))
    make_ready(mesh)
    states += [mesh.state(member), mesh.state(member, late=True)]
    mesh.drain(CLIENT, "a")
    states.append(mesh.state(member))
    pass_time(mesh, 0.0, 4.0)
    states.append(mesh.state(member))
    assert states == ["hello", "assigned", "loading", "ready", "suspect", "draining", "lost"]


# --- a newcomer that cannot load ------------------------------------------------------------------------------------


def grown() -> tuple[Members, Member, Member, Member, list[Assign]]:
    """Two that compute, a third that was told what to hold; and whatever the first two were told."""
    mesh, first, second = two()
    third, done = join(mesh, "c")
    return mesh, first, second, third, [*told(done, Assign, first.control), *told(done, Assign, second.control)]


@pytest.mark.parametrize("how", ["fails", "dies", "is drained", "lies"])
def test_a_newcomer_that_does_not_get_ready_moves_nobody(how: str) -> None:
    mesh, first, second, third, moved = grown()
    assert moved == []
    before = mesh.assignment.active
    assert mesh.assignment.target is not None
    match how:
        case "fails":
            done = say(mesh, third, AssignFailed(placement=mesh.assignment.target.version, reason="disk error"))
        case "lies":
            done = say(mesh, third, Drain(name="a"))
            done += mesh.assignment.unfit(third, "its bits differ")
        case "dies":
            done = mesh.unroutable(third.control)
        case _:
            done = mesh.drain(CLIENT, "c")
    assert told(done, Assign) == []
    assert mesh.assignment.target is None
    assert mesh.assignment.active is before
    assert mesh.assignment.ready
    assert [mesh.state(one) for one in (first, second)] == [State.READY, State.READY]


def test_if_others_have_moved_already_they_are_told_to_move_back() -> None:
    mesh, first, second, third, _ = grown()
    before = mesh.assignment.active
    make_ready_only(mesh, third)
    assert mesh.assignment.target is not None
    assert mesh.assignment.target.version == 2
    done = mesh.unroutable(third.control)
    for member in (first, second):
        (assign,) = told(done, Assign, member.control)
        assert assign.placement == 3
        np.testing.assert_array_equal(assign.held, before.held(member.serial))
    make_ready(mesh)
    assert mesh.assignment.active.is_like(before)


def make_ready_only(mesh: Members, member: Member) -> None:
    """One of the placement that is being prepared; the others are told then what to hold."""
    assert mesh.assignment.target is not None
    experts = int(mesh.assignment.target.held(member.serial).sum())
    assert told(say(mesh, member, AssignReady(placement=mesh.assignment.target.version, experts=experts)), Assign)


# --- a newcomer that takes its time ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["is lost", "is drained"])
def test_who_takes_over_waits_for_no_newcomer(how: str) -> None:
    mesh, first, second, third, _ = grown()
    done = mesh.unroutable(first.control) if how == "is lost" else mesh.drain(CLIENT, "a")
    (assign,) = told(done, Assign)
    assert told(done, Assign, second.control) == [assign]
    assert assign.held.all()
    make_ready(mesh)
    assert (mesh.assignment.active.owner == second.serial).all()
    done = mesh.tick(0.0)
    assert bool(told(done, Stop, first.control)) == (how == "is drained")
    (assign,) = told(done, Assign)
    assert told(done, Assign, third.control) == [assign], "now it is its turn"
    make_ready(mesh)
    assert set(mesh.assignment.active.members) == {second.serial, third.serial}
    assert told(mesh.tick(0.0), Assign) == []


# --- where the coordinator computes no experts ----------------------------------------------------------------------


def test_the_last_holder_of_an_expert_may_not_leave_where_nobody_else_computes() -> None:
    mesh = members(expected=1, local=False)
    member, _ = join(mesh, "a")
    make_ready(mesh)
    before = mesh.assignment.active
    why = "nobody else can hold 24 experts that it holds, and the coordinator computes none"
    assert [one.reason for one in told(mesh.drain(CLIENT, "a"), Drained, CLIENT)] == [why]
    assert say(mesh, member, Drain(name="a")) == []
    assert mesh.state(member) is State.READY
    assert mesh.assignment.active is before
    other, _ = join(mesh, "b")
    done = mesh.drain(CLIENT, "a")
    assert told(done, Drained) == []
    assert told(done, Assign, other.control)[0].held.all()
    assert not mesh.assignment.switch(), "not before the other one is ready"
    assert mesh.assignment.active is before
    make_ready(mesh)
    assert (mesh.assignment.active.owner == other.serial).all()
    assert released(mesh, member)


def test_who_has_left_before_its_last_word_is_heard_has_left_in_order() -> None:
    mesh, first, _ = two()
    mesh.drain(CLIENT, "a")
    make_ready(mesh)
    assert released(mesh, first)
    done = mesh.unroutable(first.control)
    assert lost(done) == [("a", "was drained")]
    assert [one.reason for one in told(done, Drained, CLIENT)] == [""]
    assert mesh.state(first) is State.GONE
    assert told(say(mesh, first, Stopped()), SayHello), (
        "its last word is a stranger's by now, and nobody is there to hear"
    )
