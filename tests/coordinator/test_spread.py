"""Experts of a layer among members with different shares: nobody gets what it has not, and no dealing is more even."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from coordinator.spread import NOBODY, columns_of, spread
from protocol.messages import I64


@st.composite
def tables(draw: st.DrawFn, most_members: int, most_experts: int) -> NDArray[np.bool_]:
    members, experts = draw(st.integers(1, most_members)), draw(st.integers(1, most_experts))
    rows = draw(
        st.lists(st.lists(st.booleans(), min_size=experts, max_size=experts), min_size=members, max_size=members)
    )
    return np.array(rows, np.bool_)


def dealt(able: NDArray[np.bool_]) -> I64:
    """One layer, of which each is able (members, experts) to take some: all experts and members are alike."""
    members, experts = able.shape
    table = np.ascontiguousarray(able.T, np.uint8)[None]
    return spread(table, np.ones((1, experts)), np.ones(members), np.zeros(members))[0]


def loads(owner: Any, members: int) -> list[int]:
    """How many each has, the most first."""
    return sorted(np.bincount(owner[owner != NOBODY], minlength=members).tolist(), reverse=True)


@given(tables(8, 24))
def test_each_goes_to_one_who_is_able_and_to_nobody_only_if_none_is(able: NDArray[np.bool_]) -> None:
    owner = dealt(able)
    for expert, chosen in enumerate(owner.tolist()):
        assert able[chosen, expert] if chosen != NOBODY else not able[:, expert].any()


@given(tables(3, 6))
def test_no_other_dealing_is_more_even(able: NDArray[np.bool_]) -> None:
    members, _ = able.shape
    choices = [np.flatnonzero(column).tolist() or [NOBODY] for column in able.T]
    best = min(loads(np.array(dealing), members) for dealing in product(*choices))
    assert loads(dealt(able), members) == best


@given(st.integers(1, 9), st.integers(1, 40))
def test_who_can_all_hold_everything_differ_by_one_at_most(members: int, experts: int) -> None:
    counts = loads(dealt(np.ones((members, experts), np.bool_)), members)
    assert counts[0] - counts[-1] <= 1


def test_an_expert_is_handed_on_by_way_of_others() -> None:
    able = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]], np.bool_)
    assert loads(dealt(able), 3) == [2, 2, 1]


def test_nobody_is_there() -> None:
    assert dealt(np.ones((0, 3), np.bool_)).tolist() == [NOBODY] * 3


@pytest.mark.timeout(20)
def test_many_members_with_shares_of_a_large_layer_are_dealt_soon() -> None:
    able = np.random.default_rng(1).random((256, 512)) < 0.02
    able[0] = True
    assert loads(dealt(able), 256)[0] <= 4


@given(st.lists(st.integers(-2, 9), unique=True, min_size=1), st.lists(st.integers(-2, 9)))
def test_a_column_is_that_of_the_owner(serials: list[int], owner: list[int]) -> None:
    found = columns_of(np.array(owner, np.int64), np.array(serials, np.int64))
    assert found.tolist() == [serials.index(one) if one in serials else NOBODY for one in owner]
