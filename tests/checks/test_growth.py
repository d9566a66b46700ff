"""The growth of tests: leaks show, whatever noise and jumps lie over them, and jumps alone do not."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest
from growth import Growth, slope

AT = list(range(100))
KEPT_BYTES = 25 * mmap.PAGESIZE


def pages() -> mmap.mmap:
    """Fresh ones, all of them touched: what an allocator gives may have been there before."""
    kept = mmap.mmap(-1, KEPT_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept.write(b"x" * KEPT_BYTES)
    return kept


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


def test_a_process_that_keeps_what_it_makes_grows_too_much_and_no_other() -> None:
    keeps, does_not, kept = Growth(os.getpid()), Growth(os.getpid()), []
    for _ in range(60):
        keeps.look()
        kept.append(pages())
    assert keeps.each() == pytest.approx(KEPT_BYTES, rel=0.5)
    assert keeps.each() > keeps.most(troubles=60)
    for _ in range(60):
        does_not.look()
    assert does_not.each() < does_not.most(troubles=0)
    assert does_not.most(troubles=0) < 64 << 10


def test_what_is_allowed_comes_down_to_a_page_in_a_long_run() -> None:
    assert Growth(1, memory=[0] * 3000).most(troubles=0) == pytest.approx(4 << 10, rel=0.3)
