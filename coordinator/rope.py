"""Inverse frequencies of the rotary position embedding, the same on every machine."""

from __future__ import annotations

from decimal import Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_DIGITS = Context(prec=60)
"""float64 has 17: at 60 digits no power lies so close between two of its numbers that the choice could be wrong."""


@lru_cache(maxsize=8)
def inverse_frequencies(base: float, head_dim: int) -> NDArray[np.float64]:
    """base ** (-2 i / head_dim) for i in 0..head_dim / 2 - 1, float64, read-only, each correctly rounded.

    Decimal arithmetic is defined digit by digit; the C library's pow differs between machines in the last bit.
    ValueError unless base is above 0 and head_dim is even.
    """
    if not base > 0 or head_dim < 2 or head_dim % 2:
        raise ValueError(f"a positive base and an even head dimension expected, found {base=}, {head_dim=}")
    logarithm = _DIGITS.ln(Decimal(base))
    frequencies = np.array([_power(logarithm, Decimal(-2 * i), head_dim) for i in range(head_dim // 2)], np.float64)
    frequencies.flags.writeable = False
    return frequencies


def _power(logarithm: Decimal, numerator: Decimal, denominator: int) -> float:
    """exp(logarithm * numerator / denominator)."""
    exponent = _DIGITS.divide(_DIGITS.multiply(logarithm, numerator), Decimal(denominator))
    return float(_DIGITS.exp(exponent))
