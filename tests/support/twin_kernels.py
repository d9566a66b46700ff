"""NumPy twins of the kernels: docs/arithmetic.md in code, slow and plain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from twin_floats import F32, F, exponential, fma, join_lanes, lane_dot, round_even, silu, sine_cosine

I8 = NDArray[np.int8]
U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


def quantise(x: F32) -> tuple[I8, F32]:
    """(rows, columns) to int8 codes and one scale per 32 columns."""
    sub = x.reshape(len(x), -1, 32)
    amax = (sub.view(np.uint32) & np.uint32(0x7FFFFFFF)).max(-1)
    if (amax >= 0x7F800000).any():
        raise ValueError("NaN or infinity")
    scale = amax.view(np.float32) / F(127.0)
    safe = np.where(scale == 0, F(1), scale)[..., None].astype(np.float32)
    codes = np.clip(round_even(sub / safe), F(-127), F(127))
    codes = np.where(scale[..., None] == 0, F(0), codes)
    return codes.astype(np.int8).reshape(x.shape), scale


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows of quantised weights: integers, and what turns a sub-block's integer dot into fp32."""

    integers: I64  # (rows, columns)
    scale: F32  # (rows, subs): multiplies the integer dot
    minimum: F32 | None = None  # (rows, subs): multiplies the sum of activation codes; of types that have one


def _halves(blocks: U8, at: int) -> F32:
    """The fp16 number at a byte of each block, (rows, blocks)."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2")[..., 0].astype(np.float32)


def _decode_q8_0(data: U8, columns: int) -> Decoded:
    blocks = data.reshape(-1, columns // 32, 34)
    return Decoded(blocks[..., 2:].view(np.int8).astype(np.int64).reshape(-1, columns), _halves(blocks, 0))


def _decode_small(data: U8, columns: int, *, bits: int, middle: int | None) -> Decoded:
    """Q4_0, Q4_1, Q5_0, Q5_1: fp16 d, fp16 minimum unless there is a middle, 32 high bits if they are 5, nibbles."""
    head = 2 if middle is not None else 4
    high = 4 if bits == 5 else 0
    blocks = data.reshape(-1, columns // 32, head + high + 16)
    low = blocks[..., head + high :]
    codes = np.concatenate([low & 15, low >> 4], -1).astype(np.int64)
    if high:
        codes |= np.unpackbits(blocks[..., head : head + 4], axis=-1, bitorder="little").astype(np.int64) << 4
    minimum = _halves(blocks, 2) if middle is None else None
    return Decoded(codes.reshape(-1, columns) - (middle or 0), _halves(blocks, 0), minimum)


def _decode_six_bit(data: U8, columns: int, *, bits: int) -> Decoded:
    """Q4_K, Q5_K: fp16 d and dmin, 6-bit scales and minimums, 32 bytes of high bits if the codes have 5, nibbles."""
    high = 32 if bits == 5 else 0
    blocks = data.reshape(-1, columns // 256, 16 + high + 128)
    p = blocks[..., 4:16].astype(np.int64)
    scale = np.concatenate([p[..., :4] & 63, (p[..., 8:] & 15) | (p[..., :4] >> 6 << 4)], -1)
    minimum = np.concatenate([p[..., 4:8] & 63, (p[..., 8:] >> 4) | (p[..., 4:8] >> 6 << 4)], -1)
    low = blocks[..., 16 + high :].reshape(*blocks.shape[:2], 4, 1, 32)
    codes = np.concatenate([low & 15, low >> 4], -2).astype(np.int64).reshape(*blocks.shape[:2], 8, 32)
    if high:
        codes |= (blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1).astype(np.int64) << 4
    d, dmin = (_halves(blocks, at)[..., None] for at in (0, 2))
    rows = len(blocks)
    return Decoded(
        codes.reshape(rows, columns),
        (d * scale.astype(np.float32)).reshape(rows, -1),
        -(dmin * minimum.astype(np.float32)).reshape(rows, -1),
    )


def _decode_q6_k(data: U8, columns: int) -> Decoded:
    """The scales of 16 columns are integers: they join the codes, and one exact integer is left per sub-block."""
    blocks = data.reshape(-1, columns // 256, 210)
    low, high = (
        blocks[..., :128].reshape(*blocks.shape[:2], 2, 2, 32),
        blocks[..., 128:192].reshape(*blocks.shape[:2], 2, 1, 32),
    )
    nibbles = np.concatenate([low & 15, low >> 4], -2).astype(np.int64)  # (rows, blocks, halves, quarters, 32)
    pairs = (high >> np.array([0, 2, 4, 6], np.uint8)[:, None]).astype(np.int64) & 3
    q = (nibbles | pairs << 4) - 32
    scale = blocks[..., 192:208].view(np.int8).astype(np.int64)
    integers = q.reshape(*blocks.shape[:2], 16, 16) * scale[..., None]
    return Decoded(integers.reshape(-1, columns), _halves(blocks, 208).repeat(8, axis=1))


DECODERS: dict[int, Callable[[U8, int], Decoded]] = {
    2: partial(_decode_small, bits=4, middle=8),
    3: partial(_decode_small, bits=4, middle=None),
    6: partial(_decode_small, bits=5, middle=16),
    7: partial(_decode_small, bits=5, middle=None),
    8: _decode_q8_0,
    12: partial(_decode_six_bit, bits=4),
    13: partial(_decode_six_bit, bits=5),
    14: _decode_q6_k,
}
"""By ggml type: rows of bytes and their columns."""


def quantised_dot(weights: Decoded, codes: I8, scales: F32) -> F32:
    """(weight rows) x (activation rows) to (activation rows, weight rows)."""
    n, subs = len(codes), scales.shape[1]
    out = np.zeros((n, len(weights.integers)), np.float32)
    x = codes.astype(np.int64).reshape(n, 1, subs, 32)
    dots = (x * weights.integers.reshape(1, -1, subs, 32)).sum(-1).astype(np.float32)
    sums = x.sum(-1).astype(np.float32)
    parts = weights.scale * dots
    if weights.minimum is not None:
        parts = fma(weights.minimum, sums, parts)
    for first in range(0, subs, 8):
        block = np.zeros_like(out)
        for j in range(first, min(first + 8, subs)):
            block = fma(scales[:, j : j + 1], parts[..., j], block)
        out = out + block
    return out


def float_rows(data: U8, type_id: int, columns: int) -> F32:
    if type_id == 0:
        return data.view("<f4").reshape(-1, columns)
    if type_id == 1:
        return data.view("<f2").astype(np.float32).reshape(-1, columns)
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(-1, columns)


def matmul(data: U8, type_id: int, columns: int, x: F32) -> F32:
    """x (n, columns) times the rows stored in data, to (n, rows)."""
    if type_id in DECODERS:
        return quantised_dot(DECODERS[type_id](data, columns), *quantise(x))
    return lane_dot(float_rows(data, type_id, columns)[None], x[:, None])


def expert(matrices: tuple[U8, U8, U8], types: tuple[int, int, int], hidden: int, x: F32) -> F32:
    """down(silu(gate x) * (up x)) for rows x (n, width)."""
    width = x.shape[1]
    gate, up = (matmul(data, type_id, width, x) for data, type_id in zip(matrices[:2], types[:2], strict=True))
    return matmul(matrices[2], types[2], hidden, silu(gate) * up)


def to_fixed(weighted: F32) -> I64:
    return np.rint(weighted.astype(np.float64) * 2.0**36).astype(np.int64)


def unpack48(packed: U8) -> I64:
    """(..., 6) bytes to (...) integers."""
    wide = np.zeros((*packed.shape[:-1], 8), np.uint8)
    wide[..., 2:] = packed  # at the top, for the sign
    return wide.view("<i8")[..., 0] >> 16


def from_fixed(sums: I64) -> F32:
    return sums.astype(np.float32) * F(2.0**-36)


def rms_norm(x: F32, weight: F32, eps: float) -> F32:
    mean = lane_dot(x, x) / F(x.shape[-1])
    scale: F32 = F(1.0) / np.sqrt(mean + F(eps))
    return np.asarray((x * scale[..., None]) * weight)


def rope(x: F32, position: I32, inverse_frequency: NDArray[np.float64], magnitude: float) -> F32:
    sine, cosine = sine_cosine(position[:, None].astype(np.float64) * inverse_frequency, magnitude)
    sine, cosine = sine[:, None], cosine[:, None]
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([fma(a, cosine, -(b * sine)), fma(a, sine, b * cosine)], -1)


def attend(query: F32, keys: F32, values: F32) -> F32:
    """One head: query (dim,), keys and values (positions, dim), already rounded to the cache's type."""
    dim = len(query)
    scale = F(1.0) / np.sqrt(F(dim))
    top, total, out = np.zeros((), np.float32), np.zeros((), np.float32), np.zeros(dim, np.float32)
    for start in range(0, len(keys), 64):
        k, v = keys[start : start + 64], values[start : start + 64]
        score = lane_dot(k, query[None]) * scale
        largest = np.asarray(score.max())
        p = exponential(score - largest)
        padded = np.zeros(64, np.float32)
        padded[: len(p)] = p
        lanes = np.zeros(16, np.float32)
        for group in padded.reshape(4, 16):
            lanes = lanes + group
        block_total, block = join_lanes(lanes), np.zeros(dim, np.float32)
        for weight, row in zip(p, v, strict=True):
            block = fma(weight, row, block)
        if start == 0:
            top, total, out = largest, block_total, block
            continue
        new = np.maximum(top, largest)
        keep, take = exponential(np.array([top - new, largest - new], np.float32))
        total = fma(block_total, take, total * keep)
        out = fma(block, take, out * keep)
        top = new
    return out / total


def route(logits: F32, k: int, normalise: bool, scale: float) -> tuple[I32, F32]:
    ids = np.argsort(-logits, axis=-1, kind="stable")[:, :k].astype(np.int32)
    best = np.take_along_axis(logits, ids, -1)
    weights = exponential(best - best[:, :1])
    everything = weights if normalise else exponential(logits - best[:, :1])
    total = np.zeros(len(logits), np.float32)
    for column in everything.T:
        total = total + column
    return ids, (weights / total[:, None]) * F(scale)
