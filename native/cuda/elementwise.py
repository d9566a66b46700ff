"""Norms, rotary positions, residuals, the router and the end of the combine on a device: launches of kernels."""

from __future__ import annotations

import math

import numpy as np

from native.cuda.device import THREADS, Array, Device, blocks_of

NORM_THREADS = 128
"""That share a row of a norm."""


def rms_norm(device: Device, x: Array, weight: Array, eps: float, out: Array) -> None:
    """Rows of `weight`'s length, whatever the shape of x; out may be x."""
    (columns,) = weight.shape
    rows = math.prod(x.shape) // columns
    device.launch("rms_norm", (rows, 1, 1), NORM_THREADS, x, weight, np.float32(eps), np.int32(columns), out)


def rope_table(device: Device, position: Array, frequency: Array, magnitude: float, cos: Array, sin: Array) -> None:
    """cos and sin times `magnitude`, each (rows, head_dim / 2), of `position` (rows,) i32 times `frequency` f64."""
    rows, half = cos.shape
    device.launch(
        "rope_table",
        blocks_of(rows * half, THREADS),
        THREADS,
        position,
        frequency,
        np.float64(magnitude),
        np.int32(half),
        np.int32(rows * half),
        cos,
        sin,
    )


def rope(device: Device, x: Array, cos: Array, sin: Array) -> None:
    """Rotate (rows, heads, head_dim) in place, column i with i + head_dim / 2."""
    rows, heads, dim = x.shape
    pairs = rows * heads * (dim // 2)
    numbers = np.int32(heads), np.int32(dim // 2), np.int64(pairs)
    device.launch("rope", blocks_of(pairs, THREADS), THREADS, x, cos, sin, *numbers)


def add(device: Device, x: Array, y: Array) -> None:
    """x += y."""
    values = math.prod(x.shape)
    device.launch("add", blocks_of(values, THREADS), THREADS, x, y, np.int64(values))


def combine(device: Device, x: Array, here: Array, elsewhere: Array | None) -> None:
    """x += fp32(here + elsewhere), sums on the fixed-point grid; `here` is zero afterwards."""
    values = math.prod(x.shape)
    device.launch("combine", blocks_of(values, THREADS), THREADS, x, here, elsewhere, np.int64(values))


def route(device: Device, logits: Array, k: int, normalise: bool, scale: float, routed: Array) -> None:
    """Router top-k of `logits` (rows, experts), which are used up.

    `routed` i32 gets ids (rows, k) and fp32 weights (rows, k) behind its first number, which falls to the first row
    with a logit that is not finite.
    """
    rows, experts = logits.shape
    ids, weights = routed[1 : 1 + rows * k], routed[1 + rows * k :].view(np.float32)
    numbers = np.int32(experts), np.int32(k), np.int32(normalise), np.float32(scale)
    device.launch("route", (rows, 1, 1), 32, logits, *numbers, ids, weights, routed[:1])
