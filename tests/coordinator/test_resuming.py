"""A coordinator that takes the place of one that died: who comes back is asked for what it has; no socket, no clock."""

from __future__ import annotations

import itertools
from itertools import permutations

import numpy as np
import pytest
from bare_members import PLANNER, TERMS, beat, join, make_ready, members, say, told

from coordinator.members import Members
from coordinator.plan import LOCAL
from protocol.messages import Assign

SETTLE_S = 2.0


def resumed(expected: int, *, local: bool = True) -> Members:
    numbers = itertools.count()
    fresh = lambda: f"token-{next(numbers)}"  # noqa: E731
    return Members(TERMS, PLANNER, expected=expected, fresh_token=fresh, settle_s=SETTLE_S, local=local)


def wait(mesh: Members, begin: float, end: float) -> list[Assign]:
    """Time passes, everybody beats; what is assigned meanwhile."""
    found: list[Assign] = []
    for tenth in range(round(begin * 10), round(end * 10) + 1):
        for member in mesh:
            say(mesh, member, beat(member.token))
        found += told(mesh.tick(0.1 * tenth), Assign)
    return found


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_in_whatever_order_they_come_back_each_is_asked_for_what_it_had(order: tuple[str, ...]) -> None:
    before = members(expected=3)
    held = {}
    for name in "bca":
        join(before, name)
    make_ready(before)
    for member in before:
        held[member.name] = before.assignment.active.held(member.serial)
    after = resumed(expected=3)
    for name in order:
        member, done = join(after, name)
    for member in after:
        (assign,) = told(done, Assign, member.control)
        np.testing.assert_array_equal(assign.held, held[member.name])


def test_it_goes_on_without_those_who_do_not_come_back() -> None:
    mesh = resumed(expected=2)
    member, done = join(mesh, "a")
    assert told(done, Assign) == []
    assert wait(mesh, 0.0, SETTLE_S - 0.2) == []
    assert not mesh.assignment.ready
    (assign,) = wait(mesh, SETTLE_S - 0.1, SETTLE_S + 0.2)
    assert assign.held.all()
    assert mesh.assignment.ready, "what is not ready yet is computed here"
    assert (mesh.assignment.active.owner == LOCAL).all()
    make_ready(mesh)
    assert (mesh.assignment.active.owner == member.serial).all()


def test_with_nobody_it_goes_on_alone() -> None:
    mesh = resumed(expected=2)
    assert wait(mesh, 0.0, SETTLE_S + 0.2) == []
    assert mesh.assignment.ready
    member, done = join(mesh, "a")
    assert told(done, Assign, member.control)


def test_one_that_computes_nothing_waits_for_somebody_who_does() -> None:
    mesh = resumed(expected=2, local=False)
    assert wait(mesh, 0.0, 2 * SETTLE_S) == []
    assert not mesh.assignment.ready
    member, _ = join(mesh, "a")
    (assign,) = wait(mesh, 2 * SETTLE_S, 2 * SETTLE_S + 0.2)
    assert assign.held.all()
    assert not mesh.assignment.ready, "nobody else could answer meanwhile"
    make_ready(mesh)
    assert mesh.assignment.ready
    assert (mesh.assignment.active.owner == member.serial).all()


def test_if_all_are_back_it_does_not_wait() -> None:
    mesh = resumed(expected=1)
    _, done = join(mesh, "a")
    assert told(done, Assign)
    make_ready(mesh)
    assert mesh.assignment.ready


def test_a_first_coordinator_waits_for_all() -> None:
    mesh = members(expected=2)
    join(mesh, "a")
    assert wait(mesh, 0.0, 60.0) == []
    assert not mesh.assignment.ready
