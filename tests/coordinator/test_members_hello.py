"""Who becomes a member: strangers, names that are taken, clients, connections."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bare_members import TERMS, beat, hello, join, lost, make_ready, members, pass_time, say, told

from coordinator.member import Tell
from coordinator.members import MAX_CLIENTS
from coordinator.plan import LOCAL
from protocol.holder.membership import HELLO_AGAIN_S
from protocol.messages import (
    MAX_BEAT_S,
    MIN_BEAT_S,
    Assign,
    BeatSeen,
    OpenWork,
    Refused,
    SayHello,
    Stop,
    Stopped,
    Welcome,
)

SAME_FILE = f"{TERMS.fingerprint}: the coordinator's model, with the same files under the same names"


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
    assert (mesh.assignment.active.owner == LOCAL).all()
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
    version = mesh.assignment.target.version if mesh.assignment.target else 0
    assert mesh.open_work(b"other", OpenWork(token=member.token)) == []
    assert mesh.of_work(b"other") is member
    assert mesh.of_work(b"a-a-work") is None
    assert mesh.assignment.target is not None
    assert mesh.assignment.target.version == version


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


def test_the_machine_keeps_what_a_hello_said() -> None:
    mesh = members()
    mesh.hello(b"x", replace(hello("a"), threads=7))
    member = mesh.of_control(b"x")
    assert member is not None
    assert member.hello.threads == 7
