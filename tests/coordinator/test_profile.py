"""Profiles as values: what their ranking says, and how much of all uses so many experts have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.profile import F64, MAX_EXPERTS, MAX_ROWS_SEEN, Profile, covering, merged
from protocol.codec import encode
from protocol.messages import Assign
from protocol.wire import SMALL_FRAME_BYTES

MARK = "0123456789abcdef"


def profile(counts: object, rows: int = 1, mark: str = MARK) -> Profile:
    return Profile(fingerprint=mark, rows=rows, counts=np.array(counts, np.float64))


@st.composite
def some_counts(draw: st.DrawFn) -> F64:
    """Many of them equal, many 0."""
    layers, experts = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    row = st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0, 2.5]), min_size=experts, max_size=experts)
    return np.array(draw(st.lists(row, min_size=layers, max_size=layers)))


def pairs(ranked: Profile) -> list[tuple[int, int]]:
    experts = ranked.counts.shape[1]
    return [divmod(place, experts) for place in ranked.ranked().tolist()]


@given(some_counts())
def test_each_expert_is_ranked_once_by_its_uses_and_then_by_layer_and_number(counts: F64) -> None:
    ranked = pairs(profile(counts))
    assert sorted(ranked) == [(layer, expert) for layer in range(len(counts)) for expert in range(counts.shape[1])]
    used = [pair for pair in ranked if counts[pair]]
    assert used == ranked[: len(used)]
    assert used == sorted(used, key=lambda pair: (-counts[pair], pair))
    assert ranked[len(used) :] == sorted(ranked[len(used) :], key=lambda pair: pair[::-1])


@given(some_counts())
def test_a_rank_is_the_place_in_that_order(counts: F64) -> None:
    made = profile(counts)
    rank = made.rank()
    assert (rank.dtype, rank.shape) == (np.int32, counts.shape)
    assert [int(rank[pair]) for pair in pairs(made)] == list(range(counts.size))


def test_ten_pairs_of_twenty_four_are_completed_without_duplicates() -> None:
    counts = np.zeros((3, 8))
    counts.ravel()[[23, 1, 9, 4, 17, 12, 2, 20, 15, 7]] = range(1, 11)
    ranked = pairs(profile(counts))
    assert ranked[:10] == [divmod(place, 8) for place in (7, 15, 20, 2, 12, 17, 4, 9, 1, 23)]
    assert ranked[10:14] == [(0, 0), (1, 0), (2, 0), (1, 2)]
    assert len(set(ranked)) == 24


@given(some_counts(), st.floats(0.01, 1.0))
def test_so_many_experts_have_that_share_and_one_fewer_has_not(counts: F64, share: float) -> None:
    needed = covering(counts, share)
    ordered = sorted(counts.ravel().tolist(), reverse=True)
    total = sum(ordered)  # of halves: exact
    assert (needed == 0) == (total == 0)
    if total:
        assert sum(ordered[:needed]) >= share * total
        assert sum(ordered[: needed - 1]) < share * total
        assert ordered[needed - 1] > 0


def test_the_ranking_of_the_largest_model_fits_a_control_message() -> None:
    made = profile(np.zeros((512, MAX_EXPERTS // 512)))
    assign = Assign(placement=1, in_force=0, held=np.ones(made.counts.shape, np.uint8), rank=made.rank())
    assert max(map(len, encode(assign))) == SMALL_FRAME_BYTES


def test_layers_that_nobody_used_are_left_out_of_what_is_known() -> None:
    assert profile([[0, 0], [1, 0], [0, 0], [2, 3]]).known.tolist() == [[1, 0], [2, 3]]


def test_uses_and_rows_are_added_up() -> None:
    made = merged([profile([[1, 0]], rows=5), profile([[2.5, 4]], rows=7), profile([[0, 0]], rows=0)])
    assert (made.fingerprint, made.rows, made.counts.tolist()) == (MARK, 12, [[3.5, 4.0]])
    assert merged([profile([[1]], rows=MAX_ROWS_SEEN)] * 3).rows == MAX_ROWS_SEEN


@pytest.mark.parametrize(
    ("other", "wrong"),
    [
        (profile([[1, 2]]), ""),
        (profile([[1, 2]], mark="f" * 16), f"of the model {MARK}, expected ffffffffffffffff"),
        (profile([[1, 2, 3]]), "of 1 layers of 2 experts, expected 1 layers of 3 experts"),
        (profile([[1, 2], [3, 4]]), "of 1 layers of 2 experts, expected 2 layers of 2 experts"),
    ],
)
def test_another_models_profile_is_told_from_ones_own_with_both_values(other: Profile, wrong: str) -> None:
    assert profile([[7, 8]]).mismatch(other) == wrong
