"""The membership machine, fed by hand and by hypothesis: no socket, no clock."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.hello import Terms
from coordinator.member import FromWorker, Instructions, Lost, Member, Tell
from coordinator.members import MAX_CLIENTS, Members
from coordinator.placement import own_share
from coordinator.plan import DEVICE, LOCAL
from coordinator.report import mesh_report
from coordinator.tallies import Counters
from protocol.holder.membership import HELLO_AGAIN_S
from protocol.messages import (
    ALL_EXPERTS,
    MAX_BEAT_S,
    MIN_BEAT_S,
    PROTOCOL,
    U8,
    Assign,
    AssignFailed,
    AssignProgress,
    AssignReady,
    Beat,
    BeatSeen,
    Hello,
    Message,
    OpenWork,
    Refused,
    SayHello,
    Stop,
    Stopped,
    Welcome,
)
from protocol.stock import Stock

TERMS = Terms(
    session="5e55",
    fingerprint="0123456789abcdef",
    geometry={"layers": 3, "dense_layers": 0, "experts": 8, "width": 64, "expert_width": 32},
    work="ipc://@work",
    beat_s=0.5,
    missed_beats=6,
)

STOCK = Stock(slot_bytes=(10,) * 3, experts=8)

SAME_FILE = f"{TERMS.fingerprint}: the coordinator's model, with the same files under the same names"

M = TypeVar("M", bound=Message)


def hello(name: str, incarnation: str = "a", **change: Any) -> Hello:
    facts = {
        "protocol": PROTOCOL,
        "role": "worker",
        "name": name,
        "incarnation": incarnation,
        "pid": 1,
        "host": "box",
        "fingerprint": TERMS.fingerprint,
        "geometry": dict(TERMS.geometry),
        "isa": "scalar",
        "threads": 1,
        "entry_ns": 0,
        "room": -1,
        "pages": "",
        "able": ALL_EXPERTS,
    }
    return Hello(**(facts | change))


def beat(token: str, step: int = -1, layer: int = -1) -> Beat:
    return Beat(
        token=token,
        step=step,
        layer=layer,
        calls=0,
        entries=0,
        busy_us=0,
        wait_us=0,
        dropped=0,
        resident_bytes=0,
        round_trip_us=-1,
        residency=0,
        source="mapped",
        tiers={},
    )


def told(instructions: Instructions, kind: type[M], peer: bytes | None = None) -> list[M]:
    """Messages of this kind among the instructions, to that peer if one is named."""
    tells = [one for one in instructions if isinstance(one, Tell) and peer in (None, one.peer)]
    return [one.message for one in tells if isinstance(one.message, kind)]


def lost(instructions: Instructions) -> list[tuple[str, str]]:
    return [(one.member.name, one.reason) for one in instructions if isinstance(one, Lost)]


def members(expected: int = 0, beat_s: float = TERMS.beat_s) -> Members:
    numbers = itertools.count()
    return Members(
        replace(TERMS, beat_s=beat_s), STOCK, expected=expected, fresh_token=lambda: f"token-{next(numbers)}"
    )


def join(
    mesh: Members, name: str, incarnation: str = "a", peer: bytes | None = None, **change: Any
) -> tuple[Member, Instructions]:
    """Hello, Welcome and OpenWork of one worker."""
    control = peer or f"{name}-{incarnation}-control".encode()
    (welcome,) = told(mesh.hello(control, hello(name, incarnation, **change)), Welcome, control)
    assert welcome.session == TERMS.session
    assert welcome.work == TERMS.work
    done = mesh.open_work(control.replace(b"control", b"work"), OpenWork(token=welcome.token))
    member = mesh.of_control(control)
    assert member is not None
    return member, done


def say(mesh: Members, member: Member, message: FromWorker, now: float = 0.0) -> Instructions:
    return mesh.from_worker(member.control, message, now)


def make_ready(mesh: Members) -> None:
    """Every member of the placement being prepared reports it ready."""
    assert mesh.target is not None
    for serial in mesh.target.members:
        member = mesh.get(serial)
        assert member is not None
        experts = int(mesh.target.held(serial).sum())
        say(mesh, member, AssignReady(placement=mesh.target.version, experts=experts))
    assert mesh.switch()


def pass_time(mesh: Members, start: float, seconds: float) -> Instructions:
    """Ticks every tenth of a second from `start` on."""
    ticks = [mesh.tick(start + 0.1 * turn) for turn in range(round(seconds * 10) + 1)]
    return [one for done in ticks for one in done]


def test_without_expected_workers_it_is_ready_and_all_is_local() -> None:
    mesh = members()
    assert mesh.ready
    assert (mesh.active.owner == LOCAL).all()


def test_placement_waits_for_the_expected_workers() -> None:
    mesh = members(expected=2)
    _, done = join(mesh, "a")
    assert told(done, Assign) == []
    assert not mesh.ready
    second, done = join(mesh, "b")
    first = mesh.of_control(b"a-a-control")
    assert first is not None
    (for_first,), (for_second,) = told(done, Assign, first.control), told(done, Assign, second.control)
    assert for_first.placement == for_second.placement == 1
    np.testing.assert_array_equal(for_first.held + for_second.held, np.ones((3, 8)))
    assert (mesh.active.owner == LOCAL).all()


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
    assert not mesh.switch()
    say(mesh, second, AssignProgress(placement=1, done=2, total=3))
    assert second.progress == (2, 3)
    assert not mesh.switch()
    say(mesh, second, AssignReady(placement=1, experts=12))
    assert (mesh.active.owner == LOCAL).all()
    assert mesh.switch()
    assert mesh.ready
    assert set(mesh.active.owner.ravel().tolist()) == {first.serial, second.serial}
    assert not mesh.switch()


@pytest.mark.parametrize(
    "message", [AssignReady(placement=7, experts=24), AssignProgress(placement=7, done=3, total=3)]
)
def test_reports_about_another_placement_are_ignored(message: FromWorker) -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    assert say(mesh, member, message) == []
    assert not mesh.switch()
    assert member.progress == (0, 0)


def test_a_worker_that_holds_another_number_of_experts_gets_none() -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    say(mesh, member, AssignReady(placement=1, experts=23))
    assert member.failed == "holds 23 experts, 24 were assigned"
    assert mesh.target is None
    assert (mesh.active.owner == LOCAL).all()


def test_who_cannot_hold_its_experts_is_left_out_of_the_next_placement() -> None:
    mesh = members(expected=2)
    first, _ = join(mesh, "a")
    second, _ = join(mesh, "b")
    done = say(mesh, first, AssignFailed(placement=1, reason="disk error"))
    (again,) = told(done, Assign)
    assert again.placement == 2
    assert again.held.all()
    make_ready(mesh)
    assert (mesh.active.owner == second.serial).all()
    assert first.failed == "cannot hold its experts: disk error"


def test_what_the_coordinators_slots_hold_is_never_assigned_to_anybody() -> None:
    own = own_share(STOCK, 100)
    mesh = Members(TERMS, STOCK, expected=0, fresh_token=lambda: "token", own=own)
    np.testing.assert_array_equal(mesh.active.held(DEVICE), own)
    mesh.hello(b"a", hello("a"))
    [assign] = told(mesh.open_work(b"a-work", OpenWork(token="token")), Assign)
    np.testing.assert_array_equal(assign.held, 1 - own)
    make_ready(mesh)
    mesh.unroutable(b"a")
    np.testing.assert_array_equal(mesh.active.held(DEVICE), own)
    np.testing.assert_array_equal(mesh.active.held(LOCAL), 1 - own)
    assert mesh.ready


def test_a_peer_is_given_what_is_used_most_and_all_are_told_the_ranking() -> None:
    rank = np.arange(24, dtype=np.int32)[::-1].reshape(3, 8)
    mesh = Members(TERMS, STOCK, expected=2, fresh_token=iter("ab").__next__, rank=rank)
    mesh.hello(b"w", hello("w"))
    mesh.open_work(b"w-work", OpenWork(token="a"))
    mesh.hello(b"p", hello("p", role="peer", room=59))
    worker, peer = told(mesh.open_work(b"p-work", OpenWork(token="b")), Assign)
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
    assert mesh.active.members == (0, 1)
    assert (mesh.active.owner == LOCAL).sum() == 3 * 8 - 5
    assert not told(mesh.from_worker(b"b", beat(mesh.get(1).token), 0.0), Assign)  # and nothing is left to prepare
    assert mesh.ready


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
            before = mesh.active.held(0)
    for_a, for_b = told(done, Assign)
    assert (for_a.in_force, mesh.active.version) == (1, 1)
    assert for_a.held.any()
    assert for_b.held.any()
    kept = before if room == 240 else before & for_a.held  # 24 experts of 10 bytes are all there are
    np.testing.assert_array_equal(mesh.active.held(0), kept)
    np.testing.assert_array_equal(mesh.active.owner == LOCAL, kept == 0)
    make_ready(mesh)
    np.testing.assert_array_equal(mesh.active.held(0), for_a.held)


def test_dense_layers_are_assigned_to_nobody_and_leave_no_gap() -> None:
    terms = replace(TERMS, geometry={**TERMS.geometry, "dense_layers": 1})
    mesh = Members(terms, replace(STOCK, slot_bytes=(0, 10, 10)), expected=1, fresh_token=lambda: "token")
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
    assert (mesh.active.owner == first.serial).all()
    assert mesh.active.version == 1
    make_ready(mesh)
    assert set(mesh.active.owner.ravel().tolist()) == {first.serial, second.serial}


def test_a_lost_workers_experts_are_local_at_once_and_then_the_others() -> None:
    mesh = members(expected=2)
    first, _ = join(mesh, "a")
    second, _ = join(mesh, "b")
    make_ready(mesh)
    before = mesh.active.owner.copy()
    done = mesh.unroutable(first.control)
    assert lost(done) == [("a", "its connection is closed or full")]
    np.testing.assert_array_equal(mesh.active.owner == LOCAL, before == first.serial)
    assert mesh.active.version == 1
    assert told(done, Assign, second.control)[0].held.all()
    make_ready(mesh)
    assert (mesh.active.owner == second.serial).all()


def test_a_lost_share_goes_to_those_who_have_it_and_else_to_the_local_bank() -> None:
    first_half = np.array([[1, 1, 1, 1, 0, 0, 0, 0]] * 3, np.uint8)
    ables = {"a": first_half, "b": 1 - first_half, "c": first_half}
    mesh = members(expected=3)
    joined = {name: join(mesh, name, able=able)[0] for name, able in ables.items()}
    make_ready(mesh)
    assert [int(mesh.active.held(member.serial).sum()) for member in joined.values()] == [6, 12, 6]
    done = mesh.unroutable(joined["a"].control)
    (for_b,), (for_c,) = (told(done, Assign, joined[name].control) for name in "bc")
    np.testing.assert_array_equal(for_b.held, 1 - first_half)
    np.testing.assert_array_equal(for_c.held, first_half)
    make_ready(mesh)
    mesh.unroutable(joined["b"].control)
    assert mesh.target is None  # nobody has more to make ready
    np.testing.assert_array_equal(mesh.active.owner == LOCAL, first_half == 0)


def test_losing_the_last_worker_leaves_everything_to_the_local_bank() -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    make_ready(mesh)
    assert member.work is not None
    mesh.unroutable(member.work)
    assert mesh.ready
    assert (mesh.active.owner == LOCAL).all()
    assert mesh.gone["a"][1] == "its connection is closed or full"


def test_losing_a_worker_during_preparation_starts_another_one() -> None:
    mesh = members(expected=2)
    first, _ = join(mesh, "a")
    second, _ = join(mesh, "b")
    say(mesh, first, AssignReady(placement=1, experts=12))
    say(mesh, second, Stopped())
    assert not mesh.switch()
    assert mesh.target is not None
    assert mesh.target.version == 2
    make_ready(mesh)
    assert (mesh.active.owner == first.serial).all()


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


def test_a_stranger_is_told_to_say_hello() -> None:
    mesh = members()
    assert told(mesh.from_worker(b"x", Stopped(), 0.0), SayHello, b"x")
    assert told(mesh.from_worker(b"x", beat("token-0"), 0.0), SayHello, b"x")
    (tell,) = mesh.open_work(b"y", OpenWork(token="guess"))
    assert isinstance(tell, Tell)
    assert (tell.channel, tell.peer) == ("work", b"y")
    assert isinstance(tell.message, SayHello)


def test_a_beat_with_an_old_token_is_a_strangers() -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    assert told(say(mesh, member, beat("token-99")), SayHello, member.control)
    assert member.beat is None


def test_a_mismatch_is_refused_and_nobody_joins() -> None:
    mesh = members()
    (refused,) = told(mesh.hello(b"x", hello("a", fingerprint="ffff")), Refused, b"x")
    assert refused.mismatches == [["fingerprint", "ffff", SAME_FILE]]
    assert len(mesh) == 0


def test_a_name_whose_holder_lives_is_refused() -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a", "first")
    mesh.tick(0.0)
    done = mesh.hello(b"second", hello("a", "second"))
    assert told(done, BeatSeen, member.control)  # is it still reachable?
    assert told(done, Welcome) == []
    assert told(say(mesh, member, beat(member.token), 0.1), Refused) == []  # may be from before its death
    pass_time(mesh, 0.0, 0.4)
    (refused,) = told(say(mesh, member, beat(member.token), 0.4), Refused, b"second")
    assert refused.mismatches == [["name", "a", "a name that no other worker has; pid 1 on box has it"]]
    assert mesh.of_control(member.control) is member


def test_a_name_whose_holder_is_silent_goes_to_the_newcomer() -> None:
    mesh = members(expected=1)
    old, _ = join(mesh, "a", "first")
    make_ready(mesh)
    mesh.tick(0.0)
    mesh.hello(b"second", hello("a", "second"))
    done = pass_time(mesh, 0.0, TERMS.name_claim_s + 0.1)
    assert [name for name, _ in lost(done)] == ["a"]
    assert told(done, Welcome, b"second")
    assert mesh.get(old.serial) is None
    assert (mesh.active.owner == LOCAL).all()
    assert "a" not in mesh.gone


def test_a_restarted_worker_voids_the_old_one_as_soon_as_that_cannot_be_reached() -> None:
    mesh = members(expected=1)
    old, _ = join(mesh, "a", "first")
    mesh.hello(b"second", hello("a", "second"))
    done = mesh.unroutable(old.control)
    assert lost(done) == [("a", "its connection is closed or full")]
    assert told(done, Welcome, b"second")


def test_a_holder_silent_for_long_is_replaced_without_delay() -> None:
    mesh = members(expected=1)
    join(mesh, "a", "first")
    pass_time(mesh, 0.0, 1.0)
    done = mesh.hello(b"second", hello("a", "second"))
    assert told(done, Welcome, b"second")
    assert len(lost(done)) == 1


def test_of_two_newcomers_for_one_name_the_first_waits_and_the_second_is_refused() -> None:
    mesh = members(expected=1)
    join(mesh, "a", "first")
    mesh.hello(b"second", hello("a", "second"))
    assert told(mesh.hello(b"third", hello("a", "third")), Refused, b"third")
    assert told(pass_time(mesh, 0.0, 1.0), Welcome, b"second")


@pytest.mark.parametrize("beat_s", [MIN_BEAT_S, 0.5, MAX_BEAT_S])
@pytest.mark.parametrize("lives", [False, True])
def test_a_claim_to_a_name_is_decided_although_hello_is_repeated(beat_s: float, lives: bool) -> None:
    mesh = members(expected=1, beat_s=beat_s)
    member, _ = join(mesh, "a", "first")
    now, done = 0.0, mesh.tick(0.0)
    for turn in range(10):
        peer = f"second-{turn}".encode()  # each Hello goes over a fresh connection
        done += mesh.hello(peer, hello("a", "second"))
        hello_again_at = now + HELLO_AGAIN_S
        while now < hello_again_at:
            now += beat_s / 4
            done += mesh.tick(now)
            if lives:
                done += say(mesh, member, beat(member.token), now)
        if told(done, Refused, peer) or told(done, Welcome, peer):
            break
    assert bool(told(done, Refused)) == lives
    assert bool(told(done, Welcome)) != lives
    assert now <= 2 * HELLO_AGAIN_S


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


def test_the_same_life_saying_hello_anew_gets_a_new_membership() -> None:
    mesh = members(expected=1)
    old, _ = join(mesh, "a")
    make_ready(mesh)
    done = mesh.hello(old.control, hello("a"))
    assert lost(done) == [("a", "says hello anew")]
    new = mesh.of_control(old.control)
    assert new is not None
    assert new.serial != old.serial
    assert new.token != old.token
    assert new.work is None
    assert told(mesh.open_work(b"late", OpenWork(token=old.token)), SayHello, b"late")
    assert mesh.of_work(b"late") is None


def test_a_work_connection_can_be_opened_again_elsewhere() -> None:
    mesh = members(expected=1)
    member, _ = join(mesh, "a")
    version = mesh.target.version if mesh.target else 0
    assert mesh.open_work(b"other", OpenWork(token=member.token)) == []
    assert mesh.of_work(b"other") is member
    assert mesh.of_work(b"a-a-work") is None
    assert mesh.target is not None
    assert mesh.target.version == version


def test_clients_are_welcome_and_forgotten_when_unreachable() -> None:
    mesh = members()
    (welcome,) = told(mesh.hello(b"c", hello("cli", role="client", fingerprint="", geometry={})), Welcome, b"c")
    assert welcome.session == TERMS.session
    assert mesh.is_client(b"c")
    assert len(mesh) == 0
    assert mesh.unroutable(b"c") == []
    assert not mesh.is_client(b"c")


def test_clients_are_bounded() -> None:
    mesh = members()
    for number in range(300):
        mesh.hello(str(number).encode(), hello("cli", role="client"))
    assert not mesh.is_client(b"0")
    assert mesh.is_client(b"299")


def test_a_client_that_greets_again_stays_and_costs_nobody_a_place() -> None:
    mesh = members()
    for number in range(MAX_CLIENTS):
        mesh.hello(str(number).encode(), hello("cli", role="client"))
    for peer in (b"1", b"0"):
        mesh.hello(peer, hello("cli", role="client"))
    assert all(mesh.is_client(str(number).encode()) for number in range(MAX_CLIENTS))
    mesh.hello(b"new", hello("cli", role="client"))
    assert mesh.is_client(b"0")  # these two have shown that they live
    assert mesh.is_client(b"1")
    assert not mesh.is_client(b"2")


def test_stop_reaches_everybody_and_admits_nobody() -> None:
    mesh = members(expected=2)
    workers = [join(mesh, name)[0] for name in "ab"]
    done = mesh.stop()
    assert all(told(done, Stop, worker.control) for worker in workers)
    assert told(mesh.hello(b"x", hello("c")), Stop, b"x")
    for worker in workers:
        assert told(say(mesh, worker, Stopped()), Assign) == []
    assert len(mesh) == 0
    assert mesh.tick(1.0) == []


def test_a_lookahead_process_is_a_member_and_is_assigned_nothing() -> None:
    mesh = members(expected=1)
    (welcome,) = told(mesh.hello(b"l-control", hello("lookahead", role="lookahead", room=0)), Welcome, b"l-control")
    assert told(mesh.open_work(b"l-work", OpenWork(token=welcome.token)), SayHello, b"l-work")
    assert mesh.target is None
    worker, _ = join(mesh, "a")
    make_ready(mesh)
    assert mesh.active.members == (worker.serial,)
    lookahead = mesh.of_control(b"l-control")
    assert lookahead is not None
    assert told(say(mesh, lookahead, beat(lookahead.token)), BeatSeen)
    report = mesh_report(mesh, Counters(), (), 1.0)
    assert [one["name"] for one in report["workers"]] == ["a"]
    assert [one["name"] for one in report["lookahead"]] == ["lookahead"]
    version = mesh.active.version
    assert lost(say(mesh, lookahead, Stopped())) == [("lookahead", "left of its own will")]
    assert mesh.target is None
    assert mesh.active.version == version
    report = mesh_report(mesh, Counters(), (), 1.0)
    assert [one["name"] for one in report["workers"]] == ["a"]
    assert report["lookahead"] == []


class Mesh(RuleBasedStateMachine):
    """Workers that join, report, fall silent, die, return and lie, in any order; time passes now and then."""

    NAMES = "abc"
    SHARES = (ALL_EXPERTS, *np.random.default_rng(1).integers(0, 2, (3, 3, 8)).astype(np.uint8))
    """What workers have: everything, or a share."""

    def __init__(self) -> None:
        super().__init__()
        self.mesh = members(expected=2)
        self.now = 0.0
        self.life = itertools.count()
        self.processes: dict[bytes, Hello] = {}  # by control peer
        self.tokens: dict[bytes, str] = {}
        self.assigned: dict[bytes, Assign] = {}
        self.versions: list[int] = []

    def follow(self, done: Instructions) -> None:
        """Do what the sockets' owner and the workers would."""
        for one in done:
            if isinstance(one, Lost):
                assert self.mesh.get(one.member.serial) is None
                continue
            if one.channel == "control" and one.peer not in self.processes:
                self.follow(self.mesh.unroutable(one.peer))
                continue
            match one.message:
                case Welcome(token=token):
                    self.tokens[one.peer] = token
                case Assign() as assign:
                    self.assigned[one.peer] = assign

    @rule(name=st.sampled_from(NAMES), able=st.sampled_from(SHARES))
    def start(self, name: str, able: U8) -> None:
        life = str(next(self.life))
        peer = f"{name}-{life}".encode()
        self.processes[peer] = hello(name, life, able=able)
        self.follow(self.mesh.hello(peer, self.processes[peer]))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        del self.processes[data.draw(st.sampled_from(sorted(self.processes)))]

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def say_hello_again(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(sorted(self.processes)))
        self.follow(self.mesh.hello(peer, self.processes[peer]))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def open_work(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(sorted(self.tokens)))
        self.follow(self.mesh.open_work(b"work-" + peer, OpenWork(token=self.tokens[peer])))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), kind=st.sampled_from(["beat", "ready", "few", "failed", "stopped", "closed"]))
    def speak(self, data: st.DataObject, kind: str) -> None:
        peer = data.draw(st.sampled_from(sorted(self.tokens)))
        assign = self.assigned.get(peer)
        version, experts = (0, 0) if assign is None else (assign.placement, int(assign.held.sum()))
        messages: dict[str, FromWorker] = {
            "beat": beat(self.tokens[peer]),
            "ready": AssignReady(placement=version, experts=experts),
            "few": AssignReady(placement=version, experts=experts - 1),
            "failed": AssignFailed(placement=version, reason="x"),
            "stopped": Stopped(),
        }
        if kind == "closed":
            self.follow(self.mesh.unroutable(peer))
        else:
            self.follow(self.mesh.from_worker(peer, messages[kind], self.now))

    @rule()
    def everybody_gets_ready(self) -> None:
        for peer, assign in self.assigned.items():
            ready = AssignReady(placement=assign.placement, experts=int(assign.held.sum()))
            self.follow(self.mesh.from_worker(peer, ready, self.now))

    @rule(passed=st.sampled_from([0.1, 0.5, 5.0]), often=st.integers(1, 8))
    def pass_time(self, passed: float, often: int) -> None:
        for _ in range(often):
            self.now += passed
            self.follow(self.mesh.tick(self.now))

    @rule()
    def switch(self) -> None:
        target = self.mesh.target
        if self.mesh.switch():
            assert self.mesh.active is target
            self.versions.append(self.mesh.active.version)
            assert self.versions == sorted(set(self.versions))

    @invariant()
    def names_are_unique(self) -> None:
        names = [member.name for member in self.mesh]
        assert len(names) == len(set(names))
        assert not set(names) & set(self.mesh.gone)

    @invariant()
    def only_living_members_hold_experts(self) -> None:
        serials = {member.serial for member in self.mesh}
        for placement in (self.mesh.active, self.mesh.target):
            if placement is not None:
                assert set(placement.members) <= serials
                assert set(placement.owner.ravel().tolist()) <= {*placement.members, LOCAL}

    @invariant()
    def whoever_is_able_is_in_the_latest_placement(self) -> None:
        able = {member.serial for member in self.mesh if member.work is not None and not member.failed}
        latest = self.mesh.active if self.mesh.target is None else self.mesh.target
        if self.mesh._started:
            assert set(latest.members) == able
            hellos = [self.mesh.get(serial).hello for serial in able]
            somebodys = np.zeros((3, 8), np.bool_)
            for one in hellos:
                somebodys |= one.able.astype(np.bool_) if one.able.size else True
            np.testing.assert_array_equal(latest.owner == LOCAL, ~somebodys)

    @invariant()
    def nobody_is_given_what_it_has_not(self) -> None:
        for placement in filter(None, (self.mesh.active, self.mesh.target)):
            for member in self.mesh:
                if member.hello.able.size:
                    assert not (placement.held(member.serial) > member.hello.able).any()

    @invariant()
    def connections_lead_to_their_members(self) -> None:
        for member in self.mesh:
            assert self.mesh.of_control(member.control) is member
            assert member.work is None or self.mesh.of_work(member.work) is member
            assert member.silent_s <= TERMS.silence_limit_s


TestMesh = Mesh.TestCase
TestMesh.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_machine_keeps_what_a_hello_said() -> None:
    mesh = members()
    mesh.hello(b"x", replace(hello("a"), threads=7))
    member = mesh.of_control(b"x")
    assert member is not None
    assert member.hello.threads == 7
