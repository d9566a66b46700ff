from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from coordinator.rope import inverse_frequencies


@pytest.mark.parametrize(
    ("base", "head_dim"),
    [(1e4, 64), (1e6, 128), (5e6, 128), (float(np.float32(1e7) / 3), 32), (2.0**16, 64), (0.75, 6)],
)
def test_every_frequency_is_the_float64_nearest_to_the_exact_power(base: float, head_dim: int) -> None:
    """Proved with integers: the exact power lies between the midpoints to both neighbours."""
    for i, found in enumerate(inverse_frequencies(base, head_dim).tolist()):
        exact = Fraction(base) ** (-2 * i)  # found ** head_dim is to be compared with it
        below = (Fraction(found) + Fraction(math.nextafter(found, 0.0))) / 2
        above = (Fraction(found) + Fraction(math.nextafter(found, math.inf))) / 2
        assert below**head_dim <= exact <= above**head_dim, (i, found)


def test_known_values() -> None:
    frequencies = inverse_frequencies(1_000_000.0, 12)
    assert frequencies.dtype == np.float64
    assert frequencies.tolist() == [1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001]


def test_the_table_is_shared_and_cannot_be_written() -> None:
    frequencies = inverse_frequencies(1_000_000.0, 128)
    assert frequencies is inverse_frequencies(1_000_000.0, 128)
    with pytest.raises(ValueError, match="read-only"):
        frequencies[0] = 2.0


@pytest.mark.parametrize(("base", "head_dim"), [(0.0, 64), (-1.0, 64), (math.nan, 64), (1e6, 0), (1e6, 7), (1e6, -2)])
def test_impossible_settings_are_refused(base: float, head_dim: int) -> None:
    with pytest.raises(ValueError, match="expected, found"):
        inverse_frequencies(base, head_dim)
