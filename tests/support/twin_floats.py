"""NumPy twins of the scalar operations in native/src/exact.h: the specification in another language.

Only elementwise IEEE operations are used, in the order that docs/arithmetic.md states; fma is built from float64 with
rounding to odd, which is exact (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F = np.float32


def fma(a: F32 | F, b: F32 | F, c: F32 | F) -> F32:
    """a * b + c in one rounding, elementwise."""
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)  # exact: 48 bits of 53
    addend = np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    part = total - product
    error = np.asarray((product - (total - part)) + (addend - part))
    bits = total.view(np.int64).copy()
    to_odd = (error != 0) & (bits & 1 == 0)
    away = (error > 0) == (total > 0)
    bits = np.where(to_odd, np.where(away, bits + 1, bits - 1), bits)
    return bits.view(np.float64).astype(np.float32)


def round_even(x: F32) -> F32:
    return (x + F(12582912.0)) - F(12582912.0)


def exponential(x: F32) -> F32:
    c = np.minimum(x, F(88.0))
    c = np.maximum(c, F(-87.33))
    n = round_even(c * F(1.44269504088896341))
    r = fma(n, F(-0.693359375), c)
    r = fma(n, F(2.12194440e-4), r)
    p = np.full_like(r, F(1.9875691500e-4))
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(p, r, F(coefficient))
    y = fma(p, r * r, r) + F(1.0)
    power = ((n.astype(np.int32) + 127) << 23).view(np.float32)
    return np.where(x < F(-87.33), F(0.0), y * power).astype(np.float32)


def silu(g: F32) -> F32:
    return g / (F(1.0) + exponential(-g))


def sine_cosine(angle: NDArray[np.float64], magnitude: float) -> tuple[F32, F32]:
    """Times `magnitude`, in float64, then rounded once."""
    magic = 6755399441055744.0
    n = (angle * 0.63661977236758138 + magic) - magic
    r = (angle - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11
    z = r * r
    s = np.full_like(r, 1.58969099521155010221e-10)
    for k in (
        -2.50507602534068634195e-08,
        2.75573137070700676789e-06,
        -1.98412698298579493134e-04,
        8.33333333332248946124e-03,
        -1.66666666666666324348e-01,
    ):
        s = s * z + k
    s = r + (r * z) * s
    c = np.full_like(r, -1.13596475577881948265e-11)
    for k in (
        2.08757232129817482790e-09,
        -2.75573143513906633035e-07,
        2.48015872894767294178e-05,
        -1.38888888888741095749e-03,
        4.16666666666666019037e-02,
    ):
        c = c * z + k
    c = (1.0 - 0.5 * z) + (z * z) * c
    quadrant = n.astype(np.int64) & 3
    swap = (quadrant & 1).astype(bool)
    sine, cosine = np.where(swap, c, s), np.where(swap, s, c)
    sine = np.where(quadrant >= 2, -sine, sine)
    cosine = np.where((quadrant == 1) | (quadrant == 2), -cosine, cosine)
    return (sine * magnitude).astype(np.float32), (cosine * magnitude).astype(np.float32)


def join_lanes(lanes: F32) -> F32:
    """(..., 16) to (...): 8, 4, 2, 1."""
    width = lanes.shape[-1] // 2
    while width:
        lanes = lanes[..., :width] + lanes[..., width : 2 * width]
        width //= 2
    return lanes[..., 0]


def lane_dot(w: F32, x: F32) -> F32:
    """Dot over the last axis: column i in lane i % 16 by fma, ascending; lanes joined in a tree."""
    w, x = np.broadcast_arrays(w, x)
    lanes = np.zeros((*w.shape[:-1], 16), np.float32)
    for start in range(0, w.shape[-1], 16):
        count = min(16, w.shape[-1] - start)
        part = slice(start, start + count)
        lanes[..., :count] = fma(w[..., part], x[..., part], lanes[..., :count])
    return join_lanes(lanes)
