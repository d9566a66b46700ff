"""Deadlines follow what was observed; a line carries two calls, and a suspect gets no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.deadlines import CallLimits, Latency, Line
from coordinator.plan import Part

LIMITS = CallLimits(floor_s=0.3, ceiling_s=20.0, first_s=5.0, slack=2.0)
SECONDS = st.floats(0.0, 1000.0)


def part(entries: int = 4, attempt: int = 0) -> Part:
    numbers = np.arange(entries)
    return Part(
        holder=1,
        attempt=attempt,
        bits=(1 << entries) - 1,
        expert=numbers.astype(np.int32),
        row=np.zeros(entries, np.int32),
        weight=np.ones(entries, np.float32),
    )


def test_the_first_call_has_an_allowance_of_its_own() -> None:
    assert Latency(LIMITS).limit_s(8) == 5.0


def test_a_fast_worker_gets_the_floor() -> None:
    latency = Latency(LIMITS)
    for _ in range(20):
        latency.observe(4, 0.001, 0.0005)
    assert latency.limit_s(4) == 0.3


def test_more_entries_get_more_time() -> None:
    latency = Latency(LIMITS)
    for _ in range(50):
        latency.observe(10, 0.21, 0.2)  # 20 ms an entry
    assert latency.limit_s(100) == pytest.approx(2 * 100 * 0.02, rel=0.05)
    assert latency.limit_s(50) < latency.limit_s(100) < latency.limit_s(400)


def test_an_unsteady_worker_gets_more_time_than_a_steady_one_of_the_same_mean() -> None:
    steady, unsteady = Latency(LIMITS), Latency(LIMITS)
    for turn in range(40):
        steady.observe(1, 1.0, 0.0)
        unsteady.observe(1, 0.5 if turn % 2 else 1.5, 0.0)
    assert unsteady.limit_s(1) > 1.5 * steady.limit_s(1)


@given(st.lists(st.tuples(st.integers(0, 5000), SECONDS, st.floats(-10.0, 2000.0))), st.integers(1, 5000))
def test_limits_stay_within_their_bounds_whatever_a_worker_claims(
    calls: list[tuple[int, float, float]], entries: int
) -> None:
    latency = Latency(LIMITS)
    for observed, elapsed_s, busy_s in calls:
        latency.observe(observed, elapsed_s, busy_s)
    assert LIMITS.floor_s <= latency.limit_s(entries) <= LIMITS.ceiling_s


def test_a_line_is_free_until_it_has_two_calls_and_again_when_one_is_answered() -> None:
    line = Line(LIMITS)
    call = line.begin(7, 2, part(), now=100.0)
    assert call.deadline_at == 105.0
    assert line.free
    other = line.begin(8, 2, part(), now=100.05)
    assert not line.free
    assert line.find(7, 2, 0) is call
    line.answered(call, 100.1, busy_s=0.05)
    assert line.free
    assert line.find(7, 2, 0) is None
    assert line.find(8, 2, 0) is other
    line.answered(other, 100.2, busy_s=0.05)
    assert not line.suspect


@pytest.mark.parametrize("numbers", [(6, 2, 0), (7, 1, 0), (7, 2, 1), (8, 2, 0)])
def test_another_calls_numbers_do_not_answer_it(numbers: tuple[int, int, int]) -> None:
    line = Line(LIMITS)
    line.begin(7, 2, part(), now=0.0)
    line.begin(8, 1, part(), now=0.0)
    assert line.find(*numbers) is None


def test_a_third_call_is_refused_while_two_are_awaited() -> None:
    line = Line(LIMITS)
    line.begin(7, 2, part(), now=0.0)
    line.begin(8, 2, part(), now=0.0)
    with pytest.raises(ValueError, match="not answered: step 7, layer 2, step 8, layer 2"):
        line.begin(7, 3, part(), now=1.0)


def test_a_call_behind_another_has_its_whole_limit_from_when_that_is_done() -> None:
    line = Line(LIMITS)
    first = line.begin(7, 2, part(), now=100.0, limit_s=3.0)
    second = line.begin(8, 2, part(), now=101.0, limit_s=2.0)
    assert line.time_left(first, 101.0) == 2.0
    assert line.time_left(second, 101.0) == 2.0 + 2.0
    assert line.time_left(second, 150.0) == 2.0  # whoever waits for the first one is to give it up
    line.answered(first, 102.5, busy_s=1.0)
    assert line.time_left(first, 102.5) == 0.0
    assert line.time_left(second, 102.5) == 2.0
    assert line.time_left(second, 104.0) == 0.5
    assert line.time_left(second, 105.0) == 0.0


def test_what_a_call_waited_for_another_is_no_time_of_its_own() -> None:
    both, alone = Line(LIMITS), Line(LIMITS)
    for turn in range(20):
        now = 10.0 * turn
        alone.answered(alone.begin(2 * turn, 0, part(), now=now), now + 1.0, busy_s=0.9)
        halves = [both.begin(2 * turn + half, 0, part(), now=now) for half in range(2)]
        for half, call in enumerate(halves):
            both.answered(call, now + 1.0 + half, busy_s=0.9)
    assert both.latency.limit_s(4) == pytest.approx(alone.latency.limit_s(4), rel=0.05)


def test_an_answer_to_the_second_call_tells_that_the_first_ones_was_lost() -> None:
    line = Line(LIMITS)
    first = line.begin(7, 2, part(), now=0.0)
    line.answered(line.begin(8, 2, part(), now=0.0), 0.1, busy_s=0.05)
    assert line.time_left(first, 0.1) == 0.0
    assert line.find(7, 2, 0) is None
    line.give_up(first)
    assert not line.suspect
    assert line.free


@pytest.mark.parametrize("late", [0, 1])
def test_a_suspect_stays_so_until_all_its_late_answers_have_come(late: int) -> None:
    line = Line(LIMITS)
    calls = [line.begin(step, 2, part(), now=0.0) for step in (7, 8)]
    line.give_up(calls[late])
    assert line.suspect
    assert not line.free
    assert line.time_left(calls[0], 0.0) == line.time_left(calls[1], 0.0) == 0.0
    assert line.find(7, 2, 0) is calls[0]
    line.answered(calls[0], 60.0, busy_s=0.01)
    assert line.suspect
    assert not line.free
    line.answered(calls[1], 60.1, busy_s=0.01)
    assert line.free
    assert not line.suspect


def test_a_worker_that_was_frozen_does_not_get_minutes_from_then_on() -> None:
    line = Line(LIMITS)
    for start in range(20):
        line.answered(line.begin(start, 0, part(), now=float(start)), start + 0.001, busy_s=0.0005)
    call = line.begin(20, 0, part(), now=20.0)
    line.give_up()
    line.answered(call, 500.0, busy_s=0.0005)
    assert line.latency.limit_s(4) < 2.0


def test_a_worker_that_became_slow_gets_longer_limits_call_by_call() -> None:
    line, limits = Line(LIMITS), []
    for start in range(12):
        limits.append(line.latency.limit_s(4))
        line.answered(line.begin(start, 0, part(), now=0.0), 0.001 if start < 4 else 8.0, busy_s=0.0)
    assert limits[4] == LIMITS.floor_s
    assert limits[4:] == sorted(limits[4:])
    assert limits[-1] > 8.0


def test_a_lost_answer_is_noticed_by_the_second_beat_that_reports_the_call_done() -> None:
    line = Line(LIMITS)
    line.begin(7, 2, part(), now=0.0)
    assert not line.beat(7, 2, 0.1)  # not suspect: its answer is simply awaited
    line.give_up()
    assert not line.beat(7, 1, 1.0)
    assert not line.beat(7, 2, 1.5)
    assert line.suspect
    assert line.beat(7, 2, 2.0)
    assert line.free
    assert not line.suspect


def test_beats_that_report_the_first_of_two_calls_done_say_nothing_about_the_second() -> None:
    line = Line(LIMITS)
    line.begin(7, 2, part(), now=0.0)
    line.begin(8, 2, part(), now=0.0)
    line.give_up()
    assert not line.beat(7, 2, 1.0)
    assert line.beat(8, 2, 1.5)  # what the beat before said is certain now
    assert line.suspect
    assert line.find(7, 2, 0) is None
    assert line.find(8, 2, 0) is not None
    assert not line.beat(8, 2, 2.0)
    assert line.beat(8, 2, 2.5)
    assert line.free


def test_a_free_line_cannot_become_suspect() -> None:
    line = Line(LIMITS)
    line.give_up()
    assert not line.suspect


def test_calls_are_hedged_well_before_their_deadline_as_long_as_such_calls_take() -> None:
    line = Line(LIMITS)
    assert line.begin(0, 0, part(), now=0.0).hedge_s == LIMITS.hedge_first_s
    line = Line(LIMITS)
    for start in range(40):
        line.answered(line.begin(start, 0, part(), now=0.0), 0.002, busy_s=0.001)
    assert line.begin(40, 0, part(), now=0.0).hedge_s == LIMITS.hedge_floor_s < LIMITS.floor_s
    line = Line(LIMITS)
    for start in range(40):
        line.answered(line.begin(start, 0, part(), now=0.0), 0.1, busy_s=0.05)
    assert line.begin(40, 0, part(), now=0.0).hedge_s == pytest.approx(0.2, rel=0.05)


@given(st.lists(st.tuples(st.integers(0, 5000), SECONDS, SECONDS)), st.integers(1, 5000), st.floats(0.001, 1000.0))
def test_no_call_is_hedged_before_the_floor_or_after_its_deadline(
    calls: list[tuple[int, float, float]], entries: int, floor_s: float
) -> None:
    limits = replace(LIMITS, hedge_floor_s=floor_s)
    latency = Latency(limits)
    for observed, elapsed_s, busy_s in calls:
        latency.observe(observed, elapsed_s, busy_s)
    assert min(floor_s, latency.limit_s(entries)) <= latency.hedge_s(entries) <= latency.limit_s(entries)


def test_a_line_gets_no_call_while_one_is_hedged_and_is_not_suspect_before_its_deadline() -> None:
    line = Line(LIMITS)
    call = line.begin(7, 2, part(), now=0.0)
    assert line.hedge_left(call, 0.1) == pytest.approx(0.4)
    assert line.hedge_left(call, 2.0) == 0.0
    call.hedged, call.wanted = True, False
    assert not line.free
    line.pass_time(4.9)
    assert not line.suspect
    assert line.hedge_left(call, 3.0) == line.time_left(call, 3.0) == 2.0
    line.answered(call, 4.9, busy_s=0.01)
    assert line.free


def test_a_hedged_call_that_is_never_answered_makes_its_worker_suspect() -> None:
    line = Line(LIMITS)
    call = line.begin(7, 2, part(), now=0.0)
    call.hedged, call.wanted = True, False
    line.pass_time(5.0)
    assert line.suspect


def test_behind_a_hedged_call_the_next_one_is_hedged_at_once() -> None:
    line = Line(LIMITS)
    first = line.begin(7, 2, part(), now=0.0, limit_s=3.0, hedge_s=0.25)
    second = line.begin(8, 2, part(), now=0.0, limit_s=3.0, hedge_s=0.25)
    assert line.hedge_left(second, 0.125) == 0.375
    first.hedged = True
    assert line.hedge_left(second, 0.125) == 0.0


def test_beats_that_report_a_hedged_call_done_tell_that_its_answer_was_lost() -> None:
    line = Line(LIMITS)
    call = line.begin(7, 2, part(), now=0.0)
    call.hedged = True
    assert not line.beat(7, 2, 0.5)
    assert line.beat(7, 2, 1.0)
    assert line.free
