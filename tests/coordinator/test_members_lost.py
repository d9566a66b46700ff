"""Members that leave, fall silent or cannot be reached."""

from __future__ import annotations

import numpy as np
from bare_members import TERMS, beat, join, lost, make_ready, members, pass_time, say, told

from coordinator.plan import LOCAL
from protocol.messages import (
    Assign,
    AssignReady,
    BeatSeen,
    Stopped,
)


def test_a_lost_workers_experts_are_local_at_once_and_then_the_others() -> None:
    mesh = members(expected=2)
    first, _ = join(mesh, "a")
    second, _ = join(mesh, "b")
    make_ready(mesh)
    before = mesh.assignment.active.owner.copy()
    done = mesh.unroutable(first.control)
    assert lost(done) == [("a", "its connection is closed or full")]
    np.testing.assert_array_equal(mesh.assignment.active.owner == LOCAL, before == first.serial)
    assert mesh.assignment.active.version == 1
    assert told(done, Assign, second.control)[0].held.all()
    make_ready(mesh)
    assert (mesh.assignment.active.owner == second.serial).all()


def test_a_lost_share_goes_to_those_who_have_it_and_else_to_the_local_bank() -> None:
    first_half = np.array([[1, 1, 1, 1, 0, 0, 0, 0]] * 3, np.uint8)
    ables = {"a": first_half, "b": 1 - first_half, "c": first_half}
    mesh = members(expected=3)
    joined = {name: join(mesh, name, able=able)[0] for name, able in ables.items()}
    make_ready(mesh)
    assert [int(mesh.assignment.active.held(member.serial).sum()) for member in joined.values()] == [6, 12, 6]
    done = mesh.unroutable(joined["a"].control)
    (for_b,), (for_c,) = (told(done, Assign, joined[name].control) for name in "bc")
    np.testing.assert_array_equal(for_b.held, 1 - first_half)
    np.testing.assert_array_equal(for_c.held, first_half)
    make_ready(mesh)
    mesh.unroutable(joined["b"].control)
    assert mesh.assignment.target is None  # nobody has more to make ready
    np.testing.assert_array_equal(mesh.assignment.active.owner == LOCAL, first_half == 0)


def test_losing_the_last_worker_leaves_everything_to_the_local_bank() -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    make_ready(mesh)
    assert member.work is not None
    mesh.unroutable(member.work)
    assert mesh.assignment.ready
    assert (mesh.assignment.active.owner == LOCAL).all()
    assert mesh.gone["a"][1] == "its connection is closed or full"


def test_losing_a_worker_during_preparation_starts_another_one() -> None:
    mesh = members(expected=2)
    first, _ = join(mesh, "a")
    second, _ = join(mesh, "b")
    say(mesh, first, AssignReady(placement=1, experts=12))
    say(mesh, second, Stopped())
    assert not mesh.assignment.switch()
    assert mesh.assignment.target is not None
    assert mesh.assignment.target.version == 2
    make_ready(mesh)
    assert (mesh.assignment.active.owner == first.serial).all()


def test_silence_ends_a_membership_and_a_beat_prevents_it() -> None:
    mesh = members(expected=2)
    first, _ = join(mesh, "a")
    second, _ = join(mesh, "b")
    now, done = 0.0, []
    while now < 4.0:
        done += mesh.tick(now)
        if mesh.get(second.serial):
            seen = say(mesh, second, beat(second.token), now)
            assert told(seen, BeatSeen, second.control)[0].session == TERMS.session
        now += 0.25
    assert [name for name, _ in lost(done)] == ["a"]
    assert mesh.get(first.serial) is None
    assert mesh.get(second.serial) is second


def test_time_in_which_nobody_listened_is_not_silence() -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    mesh.tick(0.0)
    assert lost(mesh.tick(3600.0)) == []
    assert mesh.get(member.serial) is member
    assert member.silent_s == TERMS.beat_s


def test_a_worker_heard_on_the_work_connection_is_not_silent() -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    pass_time(mesh, 0.0, 2.5)
    mesh.heard_work(member)
    assert lost(pass_time(mesh, 2.6, 2.5)) == []
