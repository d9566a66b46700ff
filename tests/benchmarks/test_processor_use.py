"""Processor time between two readings goes to whom it belongs."""

from __future__ import annotations

import os

import pytest
from processor_use import Reading, read_clocks, use_between

PROGRAMS = {1: "ours", 2: "ours", 3: "theirs"}


def reading(wall_s: float, busy_s: float, *used_s: float) -> Reading:
    return Reading(wall_s=wall_s, busy_s=busy_s, used_s=dict(enumerate(used_s, start=1)))


def test_time_is_shared_out() -> None:
    before = reading(10.0, 100.0, 5.0, 6.0, 7.0)
    after = reading(14.0, 108.0, 8.0, 6.5, 7.25)  # 1 was asked; 2 and 3 were idle
    use = use_between(before, after, PROGRAMS, {1})
    assert (use.wall_s, use.others_s) == (4.0, 8.0 - 3.75)
    assert use.idle_s == {"ours": 0.5, "theirs": 0.25}


def test_others_never_use_less_than_nothing() -> None:
    """Clocks tick in hundredths of a second, at different moments."""
    use = use_between(reading(0, 0.0, 0, 0, 0), reading(1, 0.99, 1.0, 0, 0), PROGRAMS, {1})
    assert use.others_s == 0.0


@pytest.mark.timeout(30)
def test_a_process_that_spins_is_seen() -> None:
    """This one: unless it was asked, what it uses is an idle process's."""
    programs = {os.getpid(): "this"}
    before = read_clocks(programs)
    while use_between(before, after := read_clocks(programs), programs, ()).idle_s["this"] < 0.2:
        pass
    assert use_between(before, after, programs, programs).idle_s["this"] == 0.0
