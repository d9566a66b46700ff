"""Which experts are copied to RAM: all or none, hottest first within a budget, or what fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_worker.copy_plan import MARGIN, MARGIN_SHARE, CopyPlan, limited, plan_copies
from protocol.errors import RoomError

GIB = 1 << 30


def plan(
    sizes: list[int],
    wanted: list[list[int]],
    rank: list[list[int]] | None,
    budget: Any,
    *,
    available: int,
    headroom: int = 0,
) -> CopyPlan:
    return plan_copies(
        sizes,
        np.array(wanted, np.uint8),
        None if rank is None else np.array(rank, np.int32),
        budget,
        available=available,
        headroom=headroom,
    )


def test_all_that_are_wanted_are_copied() -> None:
    found = plan([3, 5], [[1, 0, 1], [1, 1, 0]], None, None, available=16)
    assert found.copied.tolist() == [[True, False, True], [True, True, False]]
    assert found.bytes == 16
    assert found.note == "copies of 4 of 4 experts, 16 bytes"


def test_a_dense_layer_has_experts_of_no_bytes() -> None:
    assert plan([0, 5], [[0, 0], [1, 1]], None, "auto", available=5).copied.tolist() == [[0, 0], [1, 0]]


def test_all_or_nothing() -> None:
    wanted = [[1, 0, 1], [1, 1, 0]]
    assert plan([3, 5], wanted, None, None, available=20, headroom=4).bytes == 16
    with pytest.raises(RoomError) as raised:
        plan([3, 5], wanted, None, None, available=19, headroom=4)
    assert str(raised.value) == (
        "copies of all experts take 16 bytes, but 19 bytes are available, of which 4 bytes are to stay free: "
        "15 bytes are left for them"
    )


def test_one_that_does_not_fit_is_left_out_alone() -> None:
    rank = [[3, 1], [0, 2]]  # layer 1 expert 0, layer 0 expert 1, layer 1 expert 1, layer 0 expert 0
    found = plan([3, 5], [[1, 1], [1, 1]], rank, 12, available=100)
    assert found.copied.tolist() == [[True, True], [True, False]]
    assert found.bytes == 11
    assert found.note == "copies of 3 of 4 experts, 11 bytes"


def test_what_is_not_wanted_takes_no_room_however_hot_it_is() -> None:
    found = plan([3, 5], [[1, 1], [0, 1]], [[3, 1], [0, 2]], 9, available=100)
    assert found.copied.tolist() == [[False, True], [False, True]]


def test_without_a_ranking_experts_of_all_layers_take_turns() -> None:
    found = plan([3, 5], [[1, 1, 1], [1, 1, 1]], None, 19, available=100)
    assert found.copied.tolist() == [[True, True, True], [True, True, False]]


@pytest.mark.parametrize(
    ("budget", "available", "headroom", "limit"),
    [
        (66 * GIB, 47 * GIB, 4 * GIB, 43 * GIB - GIB // 4),
        (43 * GIB, 47 * GIB, 4 * GIB, 43 * GIB),
        (43 * GIB + 1, 47 * GIB, 4 * GIB, 43 * GIB - GIB // 4),
        (1, 4 * GIB, 4 * GIB, 0),
        (1, 3 * GIB, 4 * GIB, 0),
        (GIB, 4 * GIB + GIB // 4, 4 * GIB, GIB // 4 - GIB // 64),
        (GIB, 4 * GIB + 15, 4 * GIB, 15),
        (GIB, 4 * GIB + 16, 4 * GIB, 15),
        (0, 47 * GIB, 4 * GIB, 0),
        ("auto", 47 * GIB, 4 * GIB, 43 * GIB - GIB // 4),
        ("auto", 4 * GIB, 4 * GIB, 0),
    ],
)
def test_a_budget_is_lowered_only_if_it_exceeds_the_room(
    budget: Any, available: int, headroom: int, limit: int
) -> None:
    found, why = limited(budget, available, headroom)
    assert found == limit
    assert bool(why) == (found != budget)


def test_a_lowered_budget_is_told() -> None:
    found = plan([GIB], [[1] * 66], None, 66 * GIB, available=47 * GIB, headroom=4 * GIB)
    assert np.count_nonzero(found.copied) == 42
    assert found.note == (
        "66.00 GiB were asked for, 47.00 GiB are available, 4.00 GiB are to stay free, and 0.25 GiB as a margin: "
        "42.75 GiB at most; copies of 42 of 66 experts, 42.00 GiB"
    )


def test_a_small_budget_gives_an_empty_plan_and_what_fits_does_not() -> None:
    found = plan([3, 5], [[1, 1], [1, 1]], None, 2, available=100)
    assert (found.copied.any(), found.bytes, found.note) == (False, 0, "copies of 0 of 4 experts, 0 bytes")
    with pytest.raises(RoomError) as raised:
        plan([3, 5], [[0, 0], [1, 1]], None, "auto", available=14, headroom=10)
    assert str(raised.value) == (
        "not one expert can be copied: the smallest takes 5 bytes, but 14 bytes are available, "
        "of which 10 bytes are to stay free, and 0 bytes more"
    )
    assert plan([3, 5], [[0, 0], [1, 1]], None, "auto", available=15, headroom=10).copied.any()


@pytest.mark.parametrize("budget", [None, 5, "auto"])
def test_nothing_wanted_is_an_empty_plan(budget: Any) -> None:
    assert plan([3, 5], [[0, 0], [0, 0]], None, budget, available=100).bytes == 0


@pytest.mark.parametrize(
    ("sizes", "shape", "rank", "text"),
    [
        ([3], (2, 2), None, r"wanted must be \(1, experts\)"),
        ([], (0, 2), None, "with both above 0"),
        ([3, 5], (2, 0), None, "with both above 0"),
        ([3, 5], (4,), None, r"found \(4,\)"),
        ([3, 0], (2, 2), None, "an expert of layer 1 must have at least one byte, found 0"),
        ([3, 5], (2, 2), (2, 3), r"rank must be \(2, 2\) as wanted is, found \(2, 3\)"),
    ],
)
def test_what_cannot_be_planned(
    sizes: list[int], shape: tuple[int, ...], rank: tuple[int, ...] | None, text: str
) -> None:
    ranks = None if rank is None else np.zeros(rank, np.int32)
    with pytest.raises(ValueError, match=text):
        plan_copies(sizes, np.ones(shape, np.uint8), ranks, None, available=1, headroom=0)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    layers, experts = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    wanted = draw(st.lists(st.integers(0, 1), min_size=layers * experts, max_size=layers * experts))
    order = draw(st.none() | st.permutations(range(layers * experts)))
    return {
        "sizes": draw(st.lists(st.integers(1, 40), min_size=layers, max_size=layers)),
        "wanted": np.array(wanted, np.uint8).reshape(layers, experts),
        "rank": None if order is None else np.array(order, np.int32).reshape(layers, experts),
        "budget": draw(st.none() | st.integers(0, 400) | st.just("auto")),
        "available": draw(st.integers(0, 400) | st.integers(MARGIN_SHARE * MARGIN, MARGIN_SHARE * MARGIN + 400)),
        "headroom": draw(st.integers(0, 100)),
    }


@given(cases())
def test_what_is_copied_fits_and_is_hotter_than_what_is_not(case: dict[str, Any]) -> None:
    wanted = case["wanted"]
    slots = np.array(case["sizes"])[:, None].repeat(wanted.shape[1], axis=1)
    room = max(0, case["available"] - case["headroom"])
    try:
        found = plan_copies(**case)
    except RoomError:
        assert case["budget"] == "auto" or (case["budget"] is None and slots[wanted > 0].sum() > room)
        return
    assert not (found.copied & (wanted == 0)).any()
    assert found.bytes == slots[found.copied].sum() <= room
    if case["budget"] is None:
        assert (found.copied == (wanted > 0)).all()
        return
    limit = limited(case["budget"], case["available"], case["headroom"])[0]
    layers, experts = wanted.shape
    rank = case["rank"] if case["rank"] is not None else np.arange(layers * experts).reshape(experts, layers).T
    for layer, expert in np.argwhere((wanted > 0) & ~found.copied):  # whatever is left out did not fit in its turn
        hotter = found.copied & (rank < rank[layer, expert])
        assert slots[hotter].sum() + slots[layer, expert] > limit
