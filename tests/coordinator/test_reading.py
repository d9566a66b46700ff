"""How fast a prompt is read and how long the rest may take: as it turns out where cost grows steadily."""

from __future__ import annotations

import pytest

from coordinator.cli.reading import Reading


def after(done: int, *, once: float, each: float, chunk: int = 100) -> Reading:
    """A prompt whose token i takes `once` + `each` * i seconds."""
    reading = Reading()
    for tokens in range(chunk, done + 1, chunk):
        reading.take(tokens, once * tokens + each * tokens * tokens / 2)
    return reading


def test_nothing_is_known_before_the_second_chunk() -> None:
    reading = Reading()
    assert (reading.speed, reading.left_s(100)) == (None, None)
    reading.take(10, 5.0)
    assert (reading.speed, reading.left_s(100)) == (None, None)
    reading.take(10, 5.0)
    assert (reading.speed, reading.left_s(100)) == (None, None)


@pytest.mark.parametrize("done", [200, 1000, 5000])
def test_tokens_of_one_cost(done: int) -> None:
    reading = after(done, once=0.01, each=0.0)
    assert reading.speed == pytest.approx(100)
    assert reading.left_s(8000) == pytest.approx(0.01 * (8000 - done))


@pytest.mark.parametrize("done", [3000, 5000, 7900])
def test_tokens_that_cost_more_and_more(done: int) -> None:
    reading = after(done, once=0.005, each=1e-6)
    left = 0.005 * (8000 - done) + 1e-6 * (8000**2 - done**2) / 2
    assert reading.left_s(8000) == pytest.approx(left, rel=1e-6)
    assert reading.speed == pytest.approx(1 / (0.005 + 1e-6 * done), rel=0.2)


def test_a_pause_is_not_taken_for_growth_without_end() -> None:
    reading = after(3000, once=0.01, each=0.0)
    reading.take(3100, 31.0 + 60.0)
    left = reading.left_s(8000)
    assert left is not None
    assert left < 0.6 * 4900 * 2


def test_speed_is_that_of_late() -> None:
    reading = after(2000, once=0.1, each=0.0)
    for tokens in range(2100, 4001, 100):
        reading.take(tokens, 200.0 + (tokens - 2000))
    assert reading.speed == pytest.approx(1.0)
