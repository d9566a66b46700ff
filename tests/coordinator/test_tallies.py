"""Counting, and what was counted since."""

from __future__ import annotations

from coordinator.tallies import Counters, Tally


def test_what_was_counted_since_a_copy() -> None:
    counters = Counters(local_entries=5, device_entries=7, replans=1, hedges=4, late_replies=2, dropped=3)
    counters.worker("a").calls = 7
    before = counters.copy()
    counters.local_entries += 10
    counters.device_entries += 3
    counters.dropped += 1
    counters.worker("a").calls += 1
    counters.worker("a").entries += 4
    counters.worker("b").busy_us += 9
    since = counters.minus(before)
    assert since == Counters(
        local_entries=10, device_entries=3, dropped=1, workers={"a": Tally(calls=1, entries=4), "b": Tally(busy_us=9)}
    )


def test_a_copy_stays_as_it_is() -> None:
    counters = Counters()
    counters.worker("a").calls = 1
    copy = counters.copy()
    counters.worker("a").calls = 2
    assert copy.workers["a"].calls == 1


def test_workers_that_left_long_ago_are_forgotten() -> None:
    counters = Counters()
    for name in "abc":
        counters.worker(name).calls = 1
    counters.keep({"b", "x"})
    assert list(counters.workers) == ["b"]
