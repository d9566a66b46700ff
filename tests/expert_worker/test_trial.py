"""Hints are followed where messages take less time with them, and that is looked at again and again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expert_worker.trial import FIRST_HOLD, IDLE_S, LONGEST_HOLD, TURNS, WINDOW, Trial

COMPARED = len(TURNS) * (WINDOW + 1)


def run(trial: Trial, messages: int, took: Callable[[bool], float]) -> float:
    """So many messages; all the time that they took."""
    total = 0.0
    for _ in range(messages):
        total += (seconds := took(trial.on))
        trial.message(seconds)
    return total


@pytest.mark.parametrize(("with_hints", "pay"), [(0.009, True), (0.011, False)])
def test_what_takes_less_is_kept(with_hints: float, pay: bool) -> None:
    trial = Trial()
    run(trial, COMPARED, lambda on: with_hints if on else 0.010)
    assert (trial.found, trial.on) == (pay, pay)
    assert trial.saved == pytest.approx(1 - with_hints / 0.010)
    run(trial, FIRST_HOLD - 1, lambda on: with_hints if on else 0.010)
    assert trial.on is pay


def test_it_is_tried_again_and_may_be_found_otherwise() -> None:
    trial = Trial()
    run(trial, COMPARED, lambda on: 0.02 if on else 0.01)
    assert trial.on is False
    run(trial, FIRST_HOLD, lambda on: 0.02 if on else 0.01)
    assert trial.on is True
    run(trial, COMPARED, lambda on: 0.01 if on else 0.02)
    assert trial.on is True


def test_a_drift_weighs_on_neither() -> None:
    trial, seconds = Trial(), 0.010

    def slower_and_slower(on: bool) -> float:
        nonlocal seconds
        seconds *= 1.001
        return seconds * (0.97 if on else 1.0)

    run(trial, COMPARED, slower_and_slower)
    assert trial.found is True


def test_time_in_which_nobody_asks_is_not_counted() -> None:
    trial = Trial()
    for turn in range(COMPARED):
        if turn % 10 == 0:
            trial.message(IDLE_S * (100 if trial.on else 2))
        trial.message(0.009 if trial.on else 0.010)
    assert trial.found is True


@given(st.floats(1.01, 3.0))
def test_hints_that_only_cost_take_little_of_all_time(factor: float) -> None:
    trial = Trial()
    messages = 40_000
    took = run(trial, messages, lambda on: 0.01 * factor if on else 0.01)
    tried = COMPARED * (2 + messages // LONGEST_HOLD + 5)
    assert took <= 0.01 * messages + 0.01 * (factor - 1) * tried / 2
