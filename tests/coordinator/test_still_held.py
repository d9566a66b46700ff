"""Members say what they hold from before, and a coordinator that starts again places by it; no socket, no clock."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from bare_members import PLANNER, STOCK, TERMS, join, make_ready, told
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.demand import Demand
from coordinator.members import Members
from coordinator.placement import Holder, own_share, place
from coordinator.planner import Planner
from coordinator.spread import fair_shares
from protocol.messages import U8, Assign

SHAPE = (len(STOCK.slot_bytes), STOCK.experts)
ALL = np.ones(SHAPE, np.uint8)
BY_PACE = replace(PLANNER, demand=Demand.even(*SHAPE, 4))
US = 1000


def mesh_of(planner: Planner, expected: int) -> Members:
    numbers = itertools.count()
    return Members(TERMS, planner, expected=expected, fresh_token=lambda: f"token-{next(numbers)}")


def placed(planner: Planner, *each: Sequence[str], **change: Any) -> Members:
    """Workers join, and each placement is in force before the next ones come; `change` is what all of them say."""
    mesh = mesh_of(planner, len(each[0]))
    for names in each:
        for name in names:
            join(mesh, name, **change)
        make_ready(mesh)
    return mesh


def held_in(mesh: Members) -> dict[str, U8]:
    """By name."""
    return {member.name: mesh.assignment.active.held(member.serial) for member in mesh}


def assigned(
    planner: Planner, held: Mapping[str, U8], order: Sequence[str], entry_us: Sequence[int] = (), **change: Any
) -> dict[str, U8]:
    """What a coordinator that is started again asks of each, by name, if they come in that order."""
    mesh = mesh_of(planner, len(order))
    paces = dict(zip(sorted(order), entry_us, strict=False))
    for name in order:
        _, done = join(mesh, name, "b", held=held[name], entry_ns=paces.get(name, 0) * US, **change)
    names = {member.control: member.name for member in mesh}
    tells = [one for one in done if getattr(one, "peer", None) in names]
    return {names[one.peer]: one.message.held for one in tells if isinstance(one.message, Assign)}


def assert_same(found: Mapping[str, U8], expected: Mapping[str, U8]) -> None:
    assert found.keys() == expected.keys()
    for name, held in expected.items():
        np.testing.assert_array_equal(found[name], held, name)


@pytest.mark.parametrize("order", list(permutations("abc")))
@pytest.mark.parametrize("entry_us", [(), (5, 5, 5), (5, 9, 2), (0, 9, 0)])
@pytest.mark.parametrize("even", [True, False])
def test_who_comes_back_keeps_what_it_holds(order: tuple[str, ...], entry_us: tuple[int, ...], even: bool) -> None:
    planner = replace(BY_PACE, even=even)
    before = held_in(placed(planner, "bc", "a"))
    assert any((held_in(placed(planner, "abc"))[name] != before[name]).any() for name in "abc"), (
        "else this shows nothing"
    )
    assert_same(assigned(planner, before, order, entry_us), before)


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_second_copies_stay_where_they_are(order: tuple[str, ...]) -> None:
    planner = replace(BY_PACE, replicas=1.4)
    before = held_in(placed(planner, "bc", "a"))
    assert sum(held.sum() for held in before.values()) > ALL.sum()
    assert_same(assigned(planner, before, order), before)


def test_second_copies_that_are_wanted_now_are_made() -> None:
    before = held_in(placed(BY_PACE, "bc", "a"))
    after = assigned(replace(BY_PACE, replicas=1.5), before, "abc")
    assert sum(int(held.sum()) for held in after.values()) == round(1.5 * ALL.sum())
    assert all((after[name] >= before[name]).all() for name in "abc")


def test_copies_that_nobody_wants_any_more_are_given_up() -> None:
    before = held_in(placed(replace(BY_PACE, replicas=1.5), "abc"))
    after = assigned(BY_PACE, before, "abc")
    np.testing.assert_array_equal(sum(after.values()), ALL)
    assert all((after[name] <= before[name]).all() for name in "abc")


@pytest.mark.parametrize("claims", ["ab", "abc"])
def test_what_several_hold_is_dealt_among_these(claims: str) -> None:
    held = {name: ALL if name in claims else ALL * 0 for name in "abc"}
    after = assigned(BY_PACE, held, "abc")
    np.testing.assert_array_equal(sum(after.values()), ALL)
    assert all(2 <= count <= 3 for name in "abc" for count in after[name].sum(axis=1))


def test_teams_stay_as_they_are() -> None:
    mesh = mesh_of(BY_PACE, 4)
    for name in "dbca":
        join(mesh, name, pages="one" if name in "ab" else "other")
    make_ready(mesh)
    before = held_in(mesh)
    again = mesh_of(BY_PACE, 4)
    for name in "abcd":
        join(again, name, "b", held=before[name], pages="one" if name in "ab" else "other")
    make_ready(again)
    assert_same(held_in(again), before)


@pytest.mark.parametrize("replicas", [1.0, 1.5])
def test_peers_and_workers_keep_what_they_hold(replicas: float) -> None:
    planner = replace(BY_PACE, replicas=replicas, rank=np.arange(ALL.size, dtype=np.int32)[::-1].reshape(SHAPE))
    roles = {"a": {"role": "peer", "room": 59}, "d": {"role": "peer", "room": 30}, "b": {}, "c": {}}
    mesh = mesh_of(planner, 3)
    for name in "dbac":
        join(mesh, name, **roles[name])
    make_ready(mesh)
    before = held_in(mesh)
    assert [int(before[name].sum()) for name in "ad"] == [5, 3]
    again = mesh_of(planner, 4)
    for name in "cabd":
        join(again, name, "b", held=before[name], **roles[name])
    make_ready(again)
    assert_same(held_in(again), before)


def test_nobody_is_believed_to_hold_more_than_it_has_room_for_or_the_weights_of() -> None:
    share = own_share(STOCK, 80)
    mesh = mesh_of(replace(BY_PACE, own=own_share(STOCK, 30)), 3)
    join(mesh, "a", role="peer", room=59, held=ALL)
    join(mesh, "b", able=share, held=ALL)
    _, done = join(mesh, "c", held=ALL)
    peer, part, rest = told(done, Assign)
    assert int(peer.held.sum()) == 5
    assert not (part.held > share).any()
    np.testing.assert_array_equal(peer.held + part.held + rest.held, 1 - own_share(STOCK, 30))


def test_who_comes_back_after_the_others_is_given_nothing_else_than_what_it_holds() -> None:
    before = held_in(placed(BY_PACE, "abc"))
    mesh = mesh_of(BY_PACE, 2)
    for name in "ab":
        join(mesh, name, "b", held=before[name])
    make_ready(mesh)
    has = held_in(mesh) | {"c": before["c"]}
    join(mesh, "c", "b", held=before["c"])
    make_ready(mesh)
    after = held_in(mesh)
    np.testing.assert_array_equal(sum(after.values()), ALL)
    assert all((after[name] <= has[name]).all() for name in "abc")


def test_who_says_hello_anew_is_given_nothing_else_than_what_it_holds() -> None:
    mesh = placed(BY_PACE, "abc")
    before = held_in(mesh)
    again, _ = join(mesh, "b", peer=b"b-again-control", held=before["b"])
    while mesh.assignment.target is not None:
        make_ready(mesh)
        mesh.tick(0.0)
    after = mesh.assignment.active.held(again.serial)
    assert (after <= before["b"]).all()
    assert (after.sum(axis=1) >= 2).all()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=2, max_size=5), st.randoms())
def test_whatever_the_paces_nobody_gives_up_what_is_its_share(paces: list[tuple[float, float]], chance: Any) -> None:
    names = "abcde"[: len(paces)]
    old, new = (dict(zip(names, column, strict=True)) for column in zip(*paces, strict=True))
    mesh = mesh_of(PLANNER, len(names))
    for name in names:
        join(mesh, name, entry_ns=round(1000 * US * old[name]), host=name)
    make_ready(mesh)
    before = held_in(mesh)
    again = mesh_of(PLANNER, len(names))
    for name in chance.sample(names, len(names)):
        join(again, name, "b", entry_ns=round(1000 * US * new[name]), held=before[name], host=name)
    make_ready(again)
    shares = fair_shares(STOCK.experts, np.array([new[name] for name in names]), np.zeros(len(names)))
    for name, share in zip(names, shares, strict=True):
        kept = (before[name] & held_in(again)[name]).sum(axis=1)
        assert (kept >= np.minimum(before[name].sum(axis=1), np.floor(share - 1e-6))).all()


def test_what_is_in_force_counts_more_than_what_is_said() -> None:
    holders = [Holder(serial=1, room=-1), Holder(serial=2, room=-1)]
    force = place(1, STOCK, STOCK.nothing(), holders[:1])
    after = BY_PACE.place(2, holders, force, held={2: ALL})
    assert (after.held(1).sum(axis=1) == 4).all()
    np.testing.assert_array_equal(after.held(1) + after.held(2), ALL)
