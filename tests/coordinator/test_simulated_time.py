"""What simulations are made of: time, processors that are shared, and lines on which bytes follow each other."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.simulation.network import OneWay, Port
from coordinator.simulation.processor import Processor
from coordinator.simulation.scenario import ENDLESS, Varied
from coordinator.simulation.timeline import Timeline


def test_the_coordinator_learns_what_happened_when_it_looks_and_it_happened_when_it_did() -> None:
    timeline, seen = Timeline(), []
    timeline.at(2.0, lambda when: seen.append(("late", when)))
    timeline.at(1.0, lambda when: seen.append(("early", when)))
    timeline.at(1.0, lambda when: timeline.at(when + 0.5, lambda at: seen.append(("then", at))))
    timeline.spend(3.0, "dense")
    assert not seen
    timeline.catch_up()
    assert seen == [("early", 1.0), ("then", 1.5), ("late", 2.0)]
    assert timeline() == 3.0
    assert timeline.spent_s == {"dense": 3.0, "sending": 0.0, "calls": 0.0, "kernels": 0.0}


def test_waiting_ends_when_it_is_done_or_over() -> None:
    timeline, seen = Timeline(), []
    for when in (1.0, 2.0, 9.0):
        timeline.at(when, seen.append)
    timeline.wait(5.0, lambda: len(seen) == 2)
    assert (timeline.now, seen) == (2.0, [1.0, 2.0])
    timeline.wait(5.0, lambda: len(seen) == 3)
    assert (timeline.now, seen) == (7.0, [1.0, 2.0])


@pytest.mark.parametrize(
    ("cores", "ends"),
    [
        (2.0, [3.0, 4.0]),  # each has its own
        (1.0, [5.0, 6.0]),  # half as fast from 1 s, when the other comes, until the first has ended
        (1.5, [3.0 + 2 / 3, 4.0 + 2 / 3]),
    ],
)
def test_jobs_share_the_cores_evenly(cores: float, ends: list[float]) -> None:
    timeline, found = Timeline(), []
    processor = Processor(timeline, cores)
    timeline.at(0.0, lambda when: processor.run(when, 3.0, 1, found.append))
    timeline.at(1.0, lambda when: processor.run(when, 3.0, 1, found.append))
    timeline.spend(100.0, "dense")
    timeline.catch_up()
    assert found == pytest.approx(ends)


def test_a_wait_is_for_kernels_while_any_run() -> None:
    timeline, found = Timeline(), []
    timeline.at(1.0, lambda when: Processor(timeline).run(when, 3.0, 1, found.append))
    timeline.at(2.0, lambda when: Processor(timeline).run(when, 3.0, 1, found.append))
    timeline.wait(10.0, lambda: False)
    assert found == [4.0, 5.0]
    assert timeline.spent_s == pytest.approx({"dense": 0.0, "sending": 0.0, "calls": 6.0, "kernels": 4.0})


def test_bytes_pass_one_after_another_and_overtake_nothing() -> None:
    rng = np.random.default_rng(1)
    shared = Port(Varied(mean=1000.0), rng)
    near = OneWay((shared, Port(Varied(mean=1000.0), rng)), Varied(mean=0.1), rng)
    far = OneWay((shared, Port(Varied(mean=500.0), rng)), Varied(mean=1.0), rng)
    assert near.arrival(0.0, 100) == pytest.approx(0.2)
    assert far.arrival(0.0, 100) == pytest.approx(1.2)  # 0.2 s by either port, at the same time
    assert near.arrival(0.0, 100) == pytest.approx(0.4)
    jumping = OneWay((Port(ENDLESS, rng), Port(ENDLESS, rng)), Varied(mean=1.0, within=2.0), rng)
    arrivals = [jumping.arrival(when, 1) for when in np.arange(0, 1, 0.01)]
    assert arrivals == sorted(arrivals)
