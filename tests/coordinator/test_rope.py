from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from coordinator.rope import rotation
from protocol.rotary import RopeScaling, Rotary

BASES = [(1e4, 64), (1e6, 128), (5e6, 128), (float(np.float32(1e7) / 3), 32), (2.0**16, 64), (1.5, 6)]


def linear(base: float, factor: float) -> Rotary:
    return Rotary(base=base, scaling=RopeScaling.LINEAR, factor=factor)


def yarn(base: float, factor: float, original: int, **more: float) -> Rotary:
    return Rotary(base=base, scaling=RopeScaling.YARN, factor=factor, original_context=original, **more)


def assert_nearest(found: float, base: float, exponent: Fraction, times: Fraction) -> None:
    """`found` is the float64 nearest to times * base ** exponent. Proved with integers: between both midpoints."""
    exact = Fraction(base) ** exponent.numerator
    below = (Fraction(found) + Fraction(math.nextafter(found, 0.0))) / 2
    above = (Fraction(found) + Fraction(math.nextafter(found, math.inf))) / 2
    assert (below / times) ** exponent.denominator <= exact <= (above / times) ** exponent.denominator


@pytest.mark.parametrize("factor", [1.0, 4.0, float(np.float32(2.7))])
@pytest.mark.parametrize(("base", "head_dim"), BASES)
def test_every_frequency_is_the_float64_nearest_to_the_exact_one(base: float, head_dim: int, factor: float) -> None:
    found = rotation(linear(base, factor), head_dim).frequencies.tolist()
    for i, one in enumerate(found):
        assert_nearest(one, base, Fraction(-2 * i, head_dim), 1 / Fraction(factor))


@pytest.mark.parametrize(
    ("rotary", "head_dim", "low", "high"),
    [
        (yarn(1e6, 4.0, 32768), 128, 23, 40),  # 64 * ln(32768 / (64 pi)) / ln(1e6) = 23.6, of 2 pi = 39.7
        (yarn(1e4, 8.0, 4096), 64, 10, 23),
        (yarn(1e4, 8.0, 4096, beta_fast=16.0, beta_slow=2.0), 64, 12, 21),
        (yarn(1e4, 3.0, 64), 64, 0, 9),  # no pair turns 32 times
        (yarn(1e4, 2.0, 4), 16, 0, 0),  # none turns even once: all but the first are slowed
        (yarn(10.0, 2.0, 2**31 - 1), 16, 59, 15),  # all turn often: none is slowed
    ],
)
def test_yarn_keeps_fast_pairs_and_slows_slow_ones(rotary: Rotary, head_dim: int, low: int, high: int) -> None:
    found = rotation(rotary, head_dim).frequencies.tolist()
    shares = [
        min(max(Fraction(i - low) / max(high - low, Fraction(1, 1000)), Fraction(0)), Fraction(1))
        for i in range(len(found))
    ]
    for i, (one, share) in enumerate(zip(found, shares, strict=True)):
        times = (1 - share) + share / Fraction(rotary.factor)
        assert_nearest(one, rotary.base, Fraction(-2 * i, head_dim), times)


def test_yarn_makes_queries_and_keys_larger() -> None:
    assert rotation(yarn(1e6, 4.0, 32768), 128).magnitude == 1.1386294361119891  # 1 + ln(4) / 10
    assert rotation(yarn(1e6, 4.0, 32768, attention_factor=0.5), 128).magnitude == 0.56931471805599453
    assert rotation(Rotary(base=1e6, attention_factor=0.5), 128).magnitude == 0.5


@pytest.mark.parametrize("rotary", [Rotary(base=1e6), linear(1e6, 1.0), yarn(1e6, 1.0, 100)])
def test_a_factor_of_1_scales_nothing(rotary: Rotary) -> None:
    found = rotation(rotary, 128)
    assert found.magnitude == 1.0
    assert bits(found.frequencies) == bits(rotation(Rotary(base=1e6), 128).frequencies)


def bits(frequencies: NDArray[np.float64]) -> bytes:
    return frequencies.tobytes()


def test_known_values() -> None:
    frequencies = rotation(Rotary(base=1_000_000.0), 12).frequencies
    assert frequencies.dtype == np.float64
    assert frequencies.tolist() == [1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001]


def test_the_table_is_shared_and_cannot_be_written() -> None:
    found = rotation(Rotary(base=1_000_000.0), 128)
    assert found is rotation(Rotary(base=1_000_000.0), 128)
    with pytest.raises(ValueError, match="read-only"):
        found.frequencies[0] = 2.0


@pytest.mark.parametrize(
    ("base", "head_dim"), [(0.0, 64), (-1.0, 64), (1.0, 64), (math.nan, 64), (1e6, 0), (1e6, 7), (1e6, -2)]
)
def test_impossible_settings_are_refused(base: float, head_dim: int) -> None:
    with pytest.raises(ValueError, match="expected, found"):
        rotation(Rotary(base=base), head_dim)
