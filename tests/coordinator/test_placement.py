"""Placements: even, complete, and left to the local bank where a member leaves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.placement import empty, spread
from coordinator.plan import LOCAL

MEMBERS = st.lists(st.integers(0, 1000), min_size=1, max_size=9, unique=True)


@given(st.integers(1, 12), st.integers(1, 40), MEMBERS)
def test_each_layer_is_even_within_one_expert(layers: int, experts: int, members: list[int]) -> None:
    placement = spread(1, layers, experts, members)
    for layer in range(layers):
        counts = [int((placement.owner[layer] == member).sum()) for member in members]
        assert sum(counts) == experts
        assert max(counts) - min(counts) <= 1


@given(st.integers(1, 12), st.integers(1, 40), MEMBERS)
def test_what_the_members_hold_is_everything_once(layers: int, experts: int, members: list[int]) -> None:
    placement = spread(1, layers, experts, members)
    together = np.sum([placement.held(member) for member in members], axis=0)
    np.testing.assert_array_equal(together, np.ones((layers, experts)))
    assert placement.held(members[0]).dtype == np.uint8


@given(st.integers(1, 9), st.data())
def test_every_member_holds_something_in_every_layer(count: int, data: st.DataObject) -> None:
    experts = data.draw(st.integers(count, 40))
    placement = spread(1, 5, experts, list(range(count)))
    assert all(placement.held(member).any(axis=1).all() for member in range(count))


def test_the_extra_expert_rotates_with_the_layer() -> None:
    placement = spread(1, 3, 4, [10, 11, 12])
    assert placement.owner.tolist() == [[10, 11, 12, 10], [11, 12, 10, 11], [12, 10, 11, 12]]
    assert {int(placement.held(member).sum()) for member in (10, 11, 12)} == {4}


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 20), MEMBERS)
def test_dense_layers_are_nobodys_and_change_nothing_behind_them(
    dense: int, layers: int, experts: int, members: list[int]
) -> None:
    placement, all_experts = (spread(1, dense + layers, experts, members, first) for first in (dense, 0))
    assert (placement.owner[:dense] == LOCAL).all()
    np.testing.assert_array_equal(placement.owner[dense:], all_experts.owner[dense:])
    assert placement.complete
    assert not placement.without(int(placement.owner[dense, 0])).complete
    assert not empty(dense + layers, experts, dense).complete


@given(st.integers(1, 6), st.integers(1, 20), MEMBERS, st.data())
def test_without_a_member_only_its_experts_become_local(
    layers: int, experts: int, members: list[int], data: st.DataObject
) -> None:
    before = spread(7, layers, experts, members)
    gone = data.draw(st.sampled_from(members))
    after = before.without(gone)
    assert after.version == before.version
    assert after.members == tuple(member for member in members if member != gone)
    np.testing.assert_array_equal(after.owner == LOCAL, before.owner == gone)
    for member in after.members:
        np.testing.assert_array_equal(after.held(member), before.held(member))


@pytest.mark.parametrize("placement", [empty(2, 3), spread(4, 2, 3, [])])
def test_without_members_everything_is_local(placement: object) -> None:
    assert placement.members == ()
    assert placement.owner.tolist() == [[LOCAL] * 3] * 2
