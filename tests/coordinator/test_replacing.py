"""Placements follow paces: when these have drifted for good, and it is worth it, members get others ready meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bare_members import PLANNER, STOCK, TERMS, join, make_ready, told

from coordinator.assignment import OUTLOOK_S
from coordinator.demand import Demand
from coordinator.drift import REVIEWS
from coordinator.member import Member
from coordinator.members import Members
from coordinator.pace import Pace
from coordinator.plan import LOCAL
from coordinator.planner import Here
from protocol.messages import Assign

MS = 1_000_000
QUICK, SLOW = Pace(entry_s=5e-3, call_s=1e-3), Pace(entry_s=12e-3, call_s=1e-3)


def some_members(*entry_ms: int, host: str = "", even: bool = False) -> tuple[Members, list[Member]]:
    """Workers of three machines, that said such a thing of themselves; the first placement is in force."""
    tokens = iter(range(1000))
    mesh = Members(
        TERMS,
        replace(PLANNER, demand=Demand.even(len(STOCK.slot_bytes), STOCK.experts, 4), even=even),
        expected=len(entry_ms),
        fresh_token=lambda: f"token-{next(tokens)}",
        host=host,
    )
    hosts = ["box", "garage", "attic"]
    there = [join(mesh, box, entry_ns=ms * MS, host=box)[0] for box, ms in zip(hosts, entry_ms, strict=False)]
    make_ready(mesh)
    return mesh, there


def held(mesh: Members, member: Member) -> int:
    return int(mesh.assignment.active.held(member.serial).sum())


def review(
    mesh: Members, paces: Mapping[int, Pace | None], times: int = REVIEWS, here: Here | None = None
) -> list[Assign]:
    return [one for _ in range(times) for one in told(mesh.assignment.review(paces, here or Here()), Assign)]


def test_the_first_placement_is_by_what_workers_say_of_themselves() -> None:
    mesh, (slow, quick) = some_members(20, 5)
    assert 0 < held(mesh, slow) < held(mesh, quick)
    mesh, (one, other) = some_members(5, 6)
    assert held(mesh, one) == held(mesh, other)


def test_who_turns_out_to_be_slower_gets_less_between_two_steps() -> None:
    mesh, (one, other) = some_members(5, 5)
    before = held(mesh, other)
    paces = {one.serial: QUICK, other.serial: SLOW}
    assert review(mesh, paces, REVIEWS - 1) == []
    assert len(review(mesh, paces, 1)) == 2
    assert held(mesh, other) == before
    assert mesh.assignment.target is not None
    make_ready(mesh)
    assert 0 < held(mesh, other) < before
    assert review(mesh, paces, 3 * REVIEWS) == []


def test_what_is_to_be_even_stays_so() -> None:
    mesh, (one, other) = some_members(5, 20, even=True)
    before = mesh.assignment.active
    assert held(mesh, one) == held(mesh, other)
    assert review(mesh, {one.serial: QUICK, other.serial: Pace(entry_s=1.0)}, 2 * REVIEWS) == []
    assert mesh.assignment.active is before


def test_a_moments_noise_and_little_gain_move_nothing() -> None:
    mesh, (one, other) = some_members(5, 5)
    for _ in range(REVIEWS):
        assert review(mesh, {one.serial: QUICK, other.serial: SLOW}, REVIEWS - 1) == []
        assert review(mesh, {one.serial: QUICK, other.serial: QUICK}, 1) == []
    slower = Pace(entry_s=6.5e-3, call_s=1e-3)
    assert review(mesh, {one.serial: slower, other.serial: slower}, 3 * REVIEWS) == []
    assert mesh.assignment.active.version == 1


def test_who_slows_all_down_gives_its_experts_back_and_stays() -> None:
    mesh, (one, awful, other) = some_members(5, 5, 5)
    review(mesh, {awful.serial: Pace(entry_s=0.2, call_s=1e-3), one.serial: QUICK, other.serial: QUICK})
    make_ready(mesh)
    assert held(mesh, awful) == 0
    assert awful.serial in mesh.assignment.active.members
    assert list(mesh.assignment.active.left_out) == [awful.serial]
    review(mesh, {})  # what slowed it is thought to be over
    make_ready(mesh)
    assert held(mesh, awful) > 0
    assert mesh.assignment.active.left_out == {}


def test_the_coordinators_own_bank_competes_with_other_machines_only() -> None:
    for host, alone in (("elsewhere", True), ("box", False)):
        mesh, (worker,) = some_members(5, host=host)
        review(mesh, {worker.serial: SLOW}, here=Here(local=Pace(entry_s=1e-4)))
        assert (mesh.assignment.target is not None) == alone
        if alone:
            make_ready(mesh)
            assert (mesh.assignment.active.owner == LOCAL).all()


def test_the_outlook_is_made_anew_now_and_then_and_with_each_placement() -> None:
    mesh, (one, other) = some_members(5, 5)
    first = mesh.assignment.outlook()
    assert first is not None
    review(mesh, {one.serial: SLOW, other.serial: SLOW}, 1)
    assert mesh.assignment.outlook() is first
    mesh.assignment.pass_time(OUTLOOK_S)
    later = mesh.assignment.outlook()
    assert later is not None
    assert later.token_s > first.token_s
    mesh, _ = some_members(0, 0)
    assert mesh.assignment.outlook() is None
