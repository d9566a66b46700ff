"""Frequencies of the rotary position embedding, scaled or not, the same on every machine.

Decimal arithmetic is defined digit by digit; the C library's pow and log differ between machines in the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from protocol.rotary import RopeScaling, Rotary

_DIGITS = Context(prec=60)
"""float64 has 17: at 60 digits no result lies so close between two of its numbers that the choice could be wrong."""
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
_LOG_PART = Decimal("0.1")
"""yarn: the part of the factor's logarithm by which queries and keys grow."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rotation:
    """What turns column pairs."""

    frequencies: NDArray[np.float64]
    """(head_dim / 2,), read-only: the angle of each pair per position."""
    magnitude: float
    """Queries and keys are multiplied by it."""


@lru_cache(maxsize=8)
def rotation(rotary: Rotary, head_dim: int) -> Rotation:
    """The rotation of a model, every number correctly rounded from its definition in docs/arithmetic.md.

    ValueError unless the base is above 1 and head_dim is even.
    """
    if not rotary.base > 1 or head_dim < 2 or head_dim % 2:
        raise ValueError(f"a base above 1 and an even head dimension expected, found {rotary.base=}, {head_dim=}")
    with localcontext(_DIGITS):
        frequencies = np.array([float(one) for one in _frequencies(rotary, head_dim)], np.float64)
        magnitude = float(_magnitude(rotary))
    frequencies.flags.writeable = False
    return Rotation(frequencies=frequencies, magnitude=magnitude)


def _frequencies(rotary: Rotary, head_dim: int) -> Iterator[Decimal]:
    logarithm, factor = Decimal(rotary.base).ln(), Decimal(rotary.factor)
    kept = _kept(rotary, head_dim)
    for i, share in enumerate(kept):
        unscaled = (logarithm * (-2 * i) / head_dim).exp()
        yield unscaled * ((1 - share) / factor + share)


def _kept(rotary: Rotary, head_dim: int) -> list[Decimal]:
    """Which share of each pair's frequency is kept as it is; the rest is divided by the factor."""
    half = head_dim // 2
    if rotary.scaling != RopeScaling.YARN:
        return [Decimal(0)] * half  # where nothing is scaled, the factor is 1
    low = max(Decimal(0), _pair(rotary, head_dim, rotary.beta_fast).to_integral_value(ROUND_FLOOR))
    high = min(Decimal(head_dim - 1), _pair(rotary, head_dim, rotary.beta_slow).to_integral_value(ROUND_CEILING))
    ramp = max(Decimal("0.001"), high - low)
    return [1 - min(Decimal(1), max(Decimal(0), (i - low) / ramp)) for i in range(half)]


def _pair(rotary: Rotary, head_dim: int, turns: float) -> Decimal:
    """The index, a fraction, of the pair that turns so often in the original context."""
    length = Decimal(rotary.original_context) / (2 * _PI * Decimal(turns))
    return head_dim * length.ln() / (2 * Decimal(rotary.base).ln())


def _magnitude(rotary: Rotary) -> Decimal:
    attention = Decimal(rotary.attention_factor)
    if rotary.scaling != RopeScaling.YARN:
        return attention
    return attention * (1 + _LOG_PART * Decimal(rotary.factor).ln())
