"""What a row more is thought to cost, and which drafts are worth it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.step_cost import FIRST_SHARE, StepCost, worth_drafting

CHANCES = st.lists(st.floats(0, 1), max_size=6).map(lambda row: sorted(row, reverse=True))


def learnt(base: float, row: float, steps: int = 60) -> StepCost:
    cost = StepCost()
    for step in range(steps):
        rows = 1 + step % 5
        cost.observe(rows, base + row * rows)
    return cost


def speed(counts: list[int], chances: list[list[float]], rows: int, cost: StepCost) -> float:
    """Expected tokens in a unit of time."""
    tokens = len(chances) + sum(sum(row[:count]) for row, count in zip(chances, counts, strict=True))
    return tokens / cost.of(rows + sum(counts))


def test_before_any_step_a_row_more_costs_a_share_of_the_first() -> None:
    cost = StepCost()
    assert (cost.of(1), cost.row) == (1.0, FIRST_SHARE)
    assert cost.of(3) == 1 + 2 * FIRST_SHARE


@pytest.mark.parametrize(("base", "row"), [(0.030, 0.002), (0.010, 0.010), (0.0, 0.02)])
def test_steps_of_different_rows_tell_what_a_row_costs(base: float, row: float) -> None:
    cost = learnt(base, row)
    assert cost.row == pytest.approx(row, rel=0.15, abs=0.0005)
    assert cost.of(3) == pytest.approx(base + 3 * row, rel=0.1)


def test_one_stalled_step_is_soon_forgotten() -> None:
    cost = learnt(0.020, 0.002)
    cost.observe(5, 3.0)
    for step in range(40):
        cost.observe(1 + step % 5, 0.020 + 0.002 * (1 + step % 5))
    assert cost.row == pytest.approx(0.002, rel=0.5)


def test_without_several_rows_for_long_the_first_thought_comes_back() -> None:
    cost = learnt(0.001, 0.010)
    expensive = cost.row / cost.of(1)
    for _ in range(300):
        cost.observe(1, 0.011)
    assert cost.row / cost.of(1) == pytest.approx(FIRST_SHARE, rel=0.05) != expensive


@given(st.lists(st.tuples(st.integers(1, 80), st.floats(0, 100)), max_size=30), st.integers(1, 100))
def test_no_times_make_a_row_cost_less_than_nothing(steps: list[tuple[int, float]], rows: int) -> None:
    cost = StepCost()
    for some, seconds in steps:
        cost.observe(some, seconds)
        assert cost.row >= 0
        assert cost.of(rows) >= -1e-9


@given(st.lists(CHANCES, max_size=3), st.integers(0, 5), st.sampled_from([0.01, 0.1, 0.3, 0.8]))
def test_no_other_numbers_of_drafts_are_faster(chances: list[list[float]], others: int, row: float) -> None:
    cost, rows = learnt(1 - row, row), len(chances) + others
    counts = worth_drafting(chances, rows, 100, cost)
    best = max(
        (speed(list(some), chances, rows, cost) for some in itertools.product(*(range(len(c) + 1) for c in chances))),
        default=0.0,
    )
    assert speed(counts, chances, rows, cost) == pytest.approx(best)


@given(st.lists(CHANCES, max_size=8), st.integers(0, 20))
def test_no_more_than_there_is_room_for(chances: list[list[float]], spare: int) -> None:
    counts = worth_drafting(chances, len(chances), spare, learnt(1.0, 0.001))
    assert sum(counts) <= spare
    assert all(count <= len(row) for count, row in zip(counts, chances, strict=True))


def test_the_best_chances_come_first() -> None:
    chances = [[0.9, 0.8, 0.2], [0.95, 0.1], []]
    assert worth_drafting(chances, 3, 3, learnt(1.0, 0.001)) == [2, 1, 0]
    assert worth_drafting(chances, 3, 0, learnt(1.0, 0.001)) == [0, 0, 0]


def test_half_the_time_is_worth_more_than_half_a_chance() -> None:
    half = StepCost()  # a second row takes half as long as the first
    assert worth_drafting([[0.49]], 1, 10, half) == [0]
    assert worth_drafting([[0.51]], 1, 10, half) == [1]


def test_where_a_row_costs_a_step_nothing_is_drafted() -> None:
    assert worth_drafting([[0.9, 0.8]], 1, 10, learnt(0.0, 1.0)) == [0]
    assert worth_drafting([[0.3]], 1, 10, StepCost()) == [0]
