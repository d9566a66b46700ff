"""Figures of runs in turns: quartiles, ratios within rounds, turns, and how they are written."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paired_figures import in_turn, paired_ratios, shared_start, spread, three_figures

FIGURES = st.lists(st.integers(1, 10**6).map(float), min_size=1, max_size=30)


def test_quartiles_are_interpolated() -> None:
    found = spread([4.0, 1.0, 2.0, 3.0])
    assert (found.low, found.median, found.high, found.count) == (1.75, 2.5, 3.25, 4)


@given(FIGURES)
def test_quartiles_enclose_the_median_and_lie_within_the_figures(figures: list[float]) -> None:
    found = spread(figures)
    assert min(figures) <= found.low <= found.median <= found.high <= max(figures)
    assert found.median == pytest.approx(statistics.median(figures))
    assert found.count == len(figures)


def test_no_figures_have_no_spread() -> None:
    with pytest.raises(ValueError, match="at least one"):
        spread([])


def test_a_spread_in_words() -> None:
    assert str(spread([1.0, 2.0, 3.0])) == "2.00 [1.50-2.50] (3)"
    assert str(spread([1234.5])) == "1234 (1)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (-4e-11, "0.000"),
        (-0.25, "-0.250"),
        (0.01234, "0.0123"),
        (0.996, "0.996"),
        (1.0, "1.00"),
        (16.44, "16.4"),
        (140.7, "141"),
        (98765.4, "98765"),
    ],
)
def test_numbers_have_three_figures_and_no_exponent(value: float, text: str) -> None:
    assert three_figures(value) == text


def test_ratios_are_those_of_the_same_round() -> None:
    assert paired_ratios({0: 2.0, 1: 9.0, 2: 5.0}, {2: 10.0, 0: 1.0}) == [2.0, 0.5]
    assert paired_ratios({0: 2.0}, {}) == []


def test_what_drifts_favours_nobody() -> None:
    drifting = [in_turn("ab", number) for number in range(4)]
    assert drifting == [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]]


@pytest.mark.parametrize(
    ("one", "other", "count"), [([], [1], 0), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 9, 3], 1), ([1], [2], 0)]
)
def test_texts_share_their_start(one: list[int], other: list[int], count: int) -> None:
    assert shared_start(one, other) == shared_start(other, one) == count
