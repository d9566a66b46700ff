"""Mishaps at random: as often as was said, several at once, the same with the same seed; and no step is ever lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scenarios import COSTS, scenario, workers

from coordinator.simulation.decoding import decode
from coordinator.simulation.living import live
from coordinator.simulation.mesh import SimulatedMesh
from coordinator.simulation.outcome import Lived
from coordinator.simulation.random_mishaps import HOUR_S, RandomMishaps, Rates
from coordinator.simulation.scenario import Scenario
from protocol.errors import ConfigError

BAD_DAY = Rates(killed=100.0, frozen=100.0, vanished=100.0, back_s=8.0)


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Workers die by the dozen."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def slow_at_home(count: int, **change: float) -> Scenario:
    """Workers are worth having, and a token takes 40 ms."""
    return scenario(workers(count), costs=replace(COSTS, step_s=30e-3, entry_s=20e-3), **change)


def test_nothing_happens_where_nothing_is_said_to() -> None:
    some = slow_at_home(3)
    found = live(some, Rates(), 0.3)
    assert found.counts == {"killed": 0, "frozen": 0, "vanished": 0, "joins": 0}
    assert (found.degraded, found.most_at_once) == (0.0, 0)
    assert found.tokens_per_s == pytest.approx(decode(some, 50).tokens_per_s, rel=0.05)
    assert found.seconds == pytest.approx(0.3 * HOUR_S, abs=1.0)
    assert len(found.step_s) < 500  # for calm is not played through


def test_mishaps_pause_some_tokens_several_happen_at_once_and_no_step_is_lost() -> None:
    found = live(slow_at_home(4), BAD_DAY, 0.02)
    assert found.most_at_once >= 2
    assert sum(found.counts.values()) >= 8
    assert found.percentile_s(50) < 2 * found.usual_s
    assert 0.05 < found.percentile_s(100) < 3.5  # hedged soon, given up after some beats at the latest
    assert 0 < found.degraded < 0.5
    assert found.steps == pytest.approx(found.seconds * found.tokens_per_s)  # each row of each step got its token


def test_the_same_seed_gives_the_same_life() -> None:
    one, again, other = (live(slow_at_home(2, seed=seed), BAD_DAY, 0.004) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.step_s, again.step_s)
    assert one.counts == again.counts
    assert one.seconds != other.seconds


@pytest.mark.parametrize("cause", ["killed", "frozen", "vanished"])
def test_each_kind_happens_as_often_as_it_was_said_and_is_over_again(cause: str) -> None:
    mesh = SimulatedMesh(slow_at_home(4))
    mesh.gather()
    mishaps = RandomMishaps(mesh, Rates(**{cause: 240.0}, back_s=5.0), np.random.default_rng(1))
    mesh.pass_time(200.0)
    expected = 4 * 200.0 / (HOUR_S / 240 + 5.0)
    assert mishaps.counts[cause] == pytest.approx(expected, abs=4 * np.sqrt(expected))
    assert sum(mishaps.counts.values()) == mishaps.counts[cause]
    assert 2 <= mishaps.most_ill <= 4


def test_newcomers_stay_and_are_used() -> None:
    mesh = SimulatedMesh(slow_at_home(1))
    mesh.gather()
    mishaps = RandomMishaps(mesh, Rates(joins=60.0), np.random.default_rng(1))
    mesh.pass_time(HOUR_S / 12)
    assert 1 <= mishaps.counts["joins"] <= 12
    assert len(mesh.members.assignment.active.members) == 1 + mishaps.counts["joins"]


def test_without_workers_nobody_can_have_a_mishap() -> None:
    with pytest.raises(ConfigError, match="no worker"):
        live(scenario(), BAD_DAY, 0.1)


def test_percentiles_count_every_step_as_often_as_it_was() -> None:
    found = Lived(
        workers=1,
        rows=2,
        usual_s=1.0,
        step_s=np.array([1.0, 5.0, 2.0]),
        times=np.array([98, 1, 1]),
        counts={},
        most_at_once=0,
    )
    assert [found.percentile_s(percent) for percent in (50, 98.5, 100)] == [1.0, 2.0, 5.0]
    assert (found.steps, found.seconds) == (100, 105.0)
    assert found.tokens_per_s == pytest.approx(200 / 105)
    assert found.degraded == pytest.approx(5 / 105)
