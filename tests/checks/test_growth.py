"""The growth of tests: leaks show, whatever noise and jumps lie over them, and jumps alone do not."""

from __future__ import annotations

import os

import numpy as np
import pytest
from growth import Growth, slope

AT = list(range(100))


def noisy(seed: int) -> list[float]:
    """Bytes of a process that does not grow: an allocator takes and gives back, and once keeps a large piece."""
    chance = np.random.default_rng(seed)
    jumps = np.where(np.arange(100) > chance.integers(20, 80), 3 << 20, 0)
    return list((30 << 20) + chance.normal(0, 100 << 10, 100) + jumps)


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_shows_and_a_jump_does_not(seed: int) -> None:
    leak = [value + 64_000 * at for at, value in zip(AT, noisy(seed), strict=True)]
    assert slope(AT, leak) - slope(AT, noisy(seed)) == pytest.approx(64_000, rel=0.5)
    alone = (np.arange(100) > 60) * float(3 << 20)
    assert slope(AT, list(alone)) == 0


def test_a_growth_of_exactly_so_much_is_told() -> None:
    assert slope([0, 0, 1, 2, 5], [10, 10, 14, 18, 30]) == 4
    assert slope([3, 3], [1, 2]) == 0, "nothing was done in between"
    assert slope([], []) == 0


def test_a_process_that_keeps_what_it_makes_grows() -> None:
    growth, kept = Growth(os.getpid()), []
    for answers in range(30):
        kept.append(os.urandom(100_000))
        growth.look(answers)
    assert growth.per_answer() == pytest.approx(100_000, rel=0.5)
