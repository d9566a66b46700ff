"""What members are assigned, and when it is in force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bare_members import PLANNER, STOCK, TERMS, beat, hello, join, lost, make_ready, members, say, told

from coordinator.member import FromWorker
from coordinator.members import Members
from coordinator.placement import own_share
from coordinator.plan import DEVICE, LOCAL
from coordinator.report import mesh_report
from coordinator.tallies import Counters
from protocol.messages import (
    Assign,
    AssignFailed,
    AssignProgress,
    AssignReady,
    BeatSeen,
    OpenWork,
    SayHello,
    Stopped,
    Welcome,
)


def test_without_expected_workers_it_is_ready_and_all_is_local() -> None:
    mesh = members()
    assert mesh.assignment.ready
    assert (mesh.assignment.active.owner == LOCAL).all()


def test_placement_waits_for_the_expected_workers() -> None:
    mesh = members(expected=2)
    _, done = join(mesh, "a")
    assert told(done, Assign) == []
    assert not mesh.assignment.ready
    second, done = join(mesh, "b")
    first = mesh.of_control(b"a-a-control")
    assert first is not None
    (for_first,), (for_second,) = told(done, Assign, first.control), told(done, Assign, second.control)
    assert for_first.placement == for_second.placement == 1
    np.testing.assert_array_equal(for_first.held + for_second.held, np.ones((3, 8)))
    assert (mesh.assignment.active.owner == LOCAL).all()


def test_a_peer_is_a_member_like_a_worker() -> None:
    mesh = members(expected=1)
    peer = b"gpu-control"
    (welcome,) = told(mesh.hello(peer, hello("gpu", role="peer", room=10**9)), Welcome, peer)
    assert [one.held.shape for one in told(mesh.open_work(b"gpu-work", OpenWork(token=welcome.token)), Assign)] == [
        (3, 8)
    ]
    assert not mesh.is_client(peer)


def test_the_switch_happens_when_every_member_is_ready_and_not_before() -> None:
    mesh = members(expected=2)
    first, _ = join(mesh, "a")
    second, _ = join(mesh, "b")
    say(mesh, first, AssignReady(placement=1, experts=12))
    assert not mesh.assignment.switch()
    say(mesh, second, AssignProgress(placement=1, done=2, total=3))
    assert second.progress == (2, 3)
    assert not mesh.assignment.switch()
    say(mesh, second, AssignReady(placement=1, experts=12))
    assert (mesh.assignment.active.owner == LOCAL).all()
    assert mesh.assignment.switch()
    assert mesh.assignment.ready
    assert set(mesh.assignment.active.owner.ravel().tolist()) == {first.serial, second.serial}
    assert not mesh.assignment.switch()


@pytest.mark.parametrize(
    "message", [AssignReady(placement=7, experts=24), AssignProgress(placement=7, done=3, total=3)]
)
def test_reports_about_another_placement_are_ignored(message: FromWorker) -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    assert say(mesh, member, message) == []
    assert not mesh.assignment.switch()
    assert member.progress == (0, 3)


def test_a_worker_that_holds_another_number_of_experts_gets_none() -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    say(mesh, member, AssignReady(placement=1, experts=23))
    assert member.failed == "holds 23 experts, 24 were assigned"
    assert mesh.assignment.target is None
    assert (mesh.assignment.active.owner == LOCAL).all()


def test_who_cannot_hold_its_experts_is_left_out_of_the_next_placement() -> None:
    mesh = members(expected=2)
    first, _ = join(mesh, "a")
    second, _ = join(mesh, "b")
    done = say(mesh, first, AssignFailed(placement=1, reason="disk error"))
    (again,) = told(done, Assign)
    assert again.placement == 2
    assert again.held.all()
    make_ready(mesh)
    assert (mesh.assignment.active.owner == second.serial).all()
    assert first.failed == "cannot hold its experts: disk error"


def test_what_the_coordinators_slots_hold_is_never_assigned_to_anybody() -> None:
    own = own_share(STOCK, 100)
    mesh = Members(TERMS, replace(PLANNER, own=own), expected=0, fresh_token=lambda: "token")
    np.testing.assert_array_equal(mesh.assignment.active.held(DEVICE), own)
    mesh.hello(b"a", hello("a"))
    [assign] = told(mesh.open_work(b"a-work", OpenWork(token="token")), Assign)
    np.testing.assert_array_equal(assign.held, 1 - own)
    make_ready(mesh)
    mesh.unroutable(b"a")
    np.testing.assert_array_equal(mesh.assignment.active.held(DEVICE), own)
    np.testing.assert_array_equal(mesh.assignment.active.held(LOCAL), 1 - own)
    assert mesh.assignment.ready


def test_a_peer_is_given_what_is_used_most_and_all_are_told_the_ranking() -> None:
    rank = np.arange(24, dtype=np.int32)[::-1].reshape(3, 8)
    mesh = Members(TERMS, replace(PLANNER, rank=rank), expected=2, fresh_token=iter("ab").__next__)
    mesh.hello(b"w", hello("w"))
    mesh.open_work(b"w-work", OpenWork(token="a"))
    mesh.hello(b"p", hello("p", role="peer", room=59))
    peer, worker = told(mesh.open_work(b"p-work", OpenWork(token="b")), Assign)
    assert np.argwhere(peer.held).tolist() == [[2, expert] for expert in range(3, 8)]
    np.testing.assert_array_equal(worker.held, 1 - peer.held)
    for assign in (worker, peer):
        np.testing.assert_array_equal(assign.rank, rank)


def test_a_member_gets_no_more_than_it_has_room_for_and_who_gets_nothing_is_there_nevertheless() -> None:
    mesh = members()
    for name, room in (("a", 59), ("b", 9)):
        mesh.hello(name.encode(), hello(name, role="peer", room=room))
        member = mesh.of_control(name.encode())
        assert member is not None
        done = mesh.open_work(b"work-" + name.encode(), OpenWork(token=member.token))
    assert [int(assign.held.sum()) for assign in told(done, Assign)] == [5, 0]
    make_ready(mesh)
    assert mesh.assignment.active.members == (0, 1)
    assert (mesh.assignment.active.owner == LOCAL).sum() == 3 * 8 - 5
    assert not told(mesh.from_worker(b"b", beat(mesh.get(1).token), 0.0), Assign)  # and nothing is left to prepare
    assert mesh.assignment.ready


@pytest.mark.parametrize("room", [80, 240])
def test_what_a_member_cannot_hold_beside_its_next_set_leaves_the_one_in_force(room: int) -> None:
    mesh = members(expected=1)
    for name in ("a", "b"):
        mesh.hello(name.encode(), hello(name, role="peer", room=room))
        member = mesh.of_control(name.encode())
        assert member is not None
        done = mesh.open_work(b"work-" + name.encode(), OpenWork(token=member.token))
        if name == "a":
            make_ready(mesh)
            before = mesh.assignment.active.held(0)
    (for_b,) = told(done, Assign)
    np.testing.assert_array_equal(
        mesh.assignment.active.held(0), before, "nothing is given up before the newcomer is ready"
    )
    (for_a,) = told(say(mesh, member, AssignReady(placement=2, experts=int(for_b.held.sum()))), Assign)
    assert (for_a.in_force, mesh.assignment.active.version) == (1, 1)
    assert for_a.held.any()
    assert for_b.held.any()
    kept = before if room == 240 else before & for_a.held  # 24 experts of 10 bytes are all there are
    np.testing.assert_array_equal(mesh.assignment.active.held(0), kept)
    np.testing.assert_array_equal(mesh.assignment.active.owner == LOCAL, kept == 0)
    make_ready(mesh)
    np.testing.assert_array_equal(mesh.assignment.active.held(0), for_a.held)


def test_dense_layers_are_assigned_to_nobody_and_leave_no_gap() -> None:
    terms = replace(TERMS, geometry={**TERMS.geometry, "dense_layers": 1})
    planner = replace(PLANNER, stock=replace(STOCK, slot_bytes=(0, 10, 10)))
    mesh = Members(terms, planner, expected=1, fresh_token=lambda: "token")
    mesh.hello(b"a", hello("a", geometry=dict(terms.geometry)))
    [assign] = told(mesh.open_work(b"a-work", OpenWork(token="token")), Assign)
    assert assign.held.tolist() == [[0] * 8, [1] * 8, [1] * 8]
    make_ready(mesh)
    mesh.hello(b"b", hello("b", geometry=dict(terms.geometry)))
    assert not told(mesh.unroutable(b"b"), Assign), "as if something were left to be assigned"


def test_a_late_worker_makes_a_new_placement_while_the_old_one_stays_in_force() -> None:
    mesh = members(expected=1)
    first, _ = join(mesh, "a")
    make_ready(mesh)
    second, done = join(mesh, "b")
    assert {assign.placement for assign in told(done, Assign)} == {2}
    assert (mesh.assignment.active.owner == first.serial).all()
    assert mesh.assignment.active.version == 1
    make_ready(mesh)
    assert set(mesh.assignment.active.owner.ravel().tolist()) == {first.serial, second.serial}


def test_an_assignment_names_the_version_in_force() -> None:
    mesh = members(expected=1)
    _, done = join(mesh, "a")
    (first,) = told(done, Assign)
    make_ready(mesh)
    _, done = join(mesh, "b")
    _, later = join(mesh, "c")  # before the second placement is ready
    assert (first.placement, first.in_force) == (1, 0)
    assert {(assign.placement, assign.in_force) for assign in told(done, Assign)} == {(2, 1)}
    assert {(assign.placement, assign.in_force) for assign in told(later, Assign)} == {(3, 1)}


def test_a_lookahead_process_is_a_member_and_is_assigned_nothing() -> None:
    mesh = members(expected=1)
    (welcome,) = told(mesh.hello(b"l-control", hello("lookahead", role="lookahead", room=0)), Welcome, b"l-control")
    assert told(mesh.open_work(b"l-work", OpenWork(token=welcome.token)), SayHello, b"l-work")
    assert mesh.assignment.target is None
    worker, _ = join(mesh, "a")
    make_ready(mesh)
    assert mesh.assignment.active.members == (worker.serial,)
    lookahead = mesh.of_control(b"l-control")
    assert lookahead is not None
    assert told(say(mesh, lookahead, beat(lookahead.token)), BeatSeen)
    report = mesh_report(mesh, Counters(), (), 1.0)
    assert [one["name"] for one in report["workers"]] == ["a"]
    assert [one["name"] for one in report["lookahead"]] == ["lookahead"]
    version = mesh.assignment.active.version
    assert lost(say(mesh, lookahead, Stopped())) == [("lookahead", "left of its own will")]
    assert mesh.assignment.target is None
    assert mesh.assignment.active.version == version
    report = mesh_report(mesh, Counters(), (), 1.0)
    assert [one["name"] for one in report["workers"]] == ["a"]
    assert [(one["state"], one["reason"]) for one in report["lookahead"]] == [("gone", "left of its own will")]
