"""When a process that ended is started again; no process and no clock is needed to know."""

from __future__ import annotations

import signal

from coordinator.hosts import NOT_REACHED
from coordinator.restarts import BAD_SETTING, Again, GiveUp, RestartHistory, RestartPolicy, after_exit

POLICY = RestartPolicy(first_delay_s=1.0, longest_delay_s=5.0, sound_s=10.0, limit=4)


def delays(lives: list[float]) -> list[float | None]:
    """The delay after each life of a role, None where it is given up."""
    history = RestartHistory()
    found: list[float | None] = []
    for lived_s in lives:
        match after_exit(-signal.SIGKILL, lived_s, history, POLICY):
            case Again(delay_s=delay_s, history=history):
                found.append(delay_s)
            case GiveUp():
                found.append(None)
    return found


def test_delays_double_up_to_the_longest_and_then_it_is_given_up() -> None:
    assert delays([0.1] * 5) == [1.0, 2.0, 4.0, 5.0, None]


def test_a_sound_life_makes_the_short_ones_forgotten() -> None:
    assert delays([0.1, 0.1, 10.0, 0.1]) == [1.0, 2.0, 1.0, 1.0]


def test_a_bad_setting_is_not_tried_again() -> None:
    assert isinstance(after_exit(BAD_SETTING, 100.0, RestartHistory(), POLICY), GiveUp)


def test_a_machine_that_cannot_be_reached_is_tried_without_a_limit() -> None:
    history, found = RestartHistory(), []
    for _ in range(1000):
        match after_exit(NOT_REACHED, 0.1, history, POLICY):
            case Again(delay_s=delay_s, history=history):
                found.append(delay_s)
    assert found == [1.0, 2.0, 4.0, *[5.0] * 997]
    assert isinstance(after_exit(1, 0.1, history, POLICY), GiveUp)
