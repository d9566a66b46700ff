"""K-quant encoders for synthetic weights: plain fits without an error search, exact in the storage format.

Also random blocks drawn directly, some 20 times faster, for files of gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

BLOCK = 256
"""Weights of one K-quant super-block."""


def encode(values: F32, kind: Type) -> NDArray[np.generic]:
    """Values as they are stored: floats, or uint8 with the bytes of a row as the last axis."""
    if kind == Type.F32:
        return values
    if kind == Type.F16:
        return values.astype(np.float16)
    if kind in K_ENCODERS:
        return K_ENCODERS[kind](values).reshape(*values.shape[:-1], -1)
    encoded: NDArray[np.generic] = quants.quantize(values, kind)
    return encoded


def random_blocks(rng: np.random.Generator, count: int, kind: Type, std: float) -> U8:
    """(count, block bytes) random K-quant blocks; the decoded weights have a mean of about 0 and about this std."""
    if kind == Type.Q6_K:
        return _random_q6_k(rng, count, std)
    top = {Type.Q4_K: 15, Type.Q5_K: 31}[kind]
    scales = rng.integers(40, 64, (count, 8), dtype=np.uint8)
    # A weight is d * scale * (code - top / 2) when minimum and scale are the same and dmin is d * top / 2.
    code_std = np.sqrt(((top + 1) ** 2 - 1) / 12.0)
    d = std / (51.5 * code_std) * rng.uniform(0.9, 1.1, count)
    parts = [_f16_bytes(d), _f16_bytes(d * top / 2), _pack_six_bits(scales, scales)]
    if kind == Type.Q5_K:
        parts.append(_random_bytes(rng, count, 32))
    return np.concatenate([*parts, _random_bytes(rng, count, 128)], 1)


def _random_q6_k(rng: np.random.Generator, count: int, std: float) -> U8:
    sizes = rng.integers(64, 127, (count, 16), dtype=np.int8, endpoint=True)
    scales = np.where(_random_bytes(rng, count, 16) & 1, sizes, -sizes).view(np.uint8)
    d = std / (95.5 * np.sqrt((64**2 - 1) / 12.0)) * rng.uniform(0.9, 1.1, count)
    return np.concatenate([_random_bytes(rng, count, 192), scales, _f16_bytes(d)], 1)


def _random_bytes(rng: np.random.Generator, rows: int, columns: int) -> U8:
    return np.frombuffer(rng.bytes(rows * columns), np.uint8).reshape(rows, columns)


def _f16_bytes(values: NDArray[np.floating]) -> U8:
    return np.ascontiguousarray(values.astype("<f2")).view(np.uint8).reshape(-1, 2)


def _pack_six_bits(scales: U8, minima: U8) -> U8:
    """8 scales and 8 minima of six bits in 12 bytes, as Q4_K and Q5_K have them."""
    packed = np.zeros((len(scales), 12), np.uint8)
    packed[:, 0:4] = (scales[:, :4] & 63) | ((scales[:, 4:] >> 4) << 6)
    packed[:, 4:8] = (minima[:, :4] & 63) | ((minima[:, 4:] >> 4) << 6)
    packed[:, 8:12] = (scales[:, 4:] & 15) | ((minima[:, 4:] & 15) << 4)
    return packed


def _inverse(steps: NDArray[np.floating]) -> NDArray[np.floating]:
    """1 / steps, and 0 where a step is 0."""
    inverse: NDArray[np.floating] = np.where(steps != 0, 1.0 / np.where(steps != 0, steps, 1), 0.0)
    return inverse


def _fit_affine(values: F32, top: int) -> tuple[U8, U8]:
    """Sub-blocks of 32 weights as d * scale * code - dmin * minimum: the 16 bytes of a block's head, and the codes."""
    blocks = values.reshape(-1, 8, 32)
    low, high = np.minimum(blocks.min(-1), 0.0), np.maximum(blocks.max(-1), 0.0)
    scale = (high - low) / top
    d = (scale.max(-1) / 63.0).astype("<f2").astype(np.float32)
    dmin = ((-low).max(-1) / 63.0).astype("<f2").astype(np.float32)
    scales = np.clip(np.rint(scale * _inverse(d)[:, None]), 0, 63).astype(np.uint8)
    minima = np.clip(np.rint(-low * _inverse(dmin)[:, None]), 0, 63).astype(np.uint8)
    step, offset = d[:, None] * scales, dmin[:, None] * minima
    codes = np.clip(np.rint((blocks + offset[..., None]) * _inverse(step)[..., None]), 0, top)
    return np.concatenate([_f16_bytes(d), _f16_bytes(dmin), _pack_six_bits(scales, minima)], 1), codes.astype(np.uint8)


def _low_bits(codes: U8) -> U8:
    """The low four bits of codes (blocks, 8, 32), two in a byte."""
    pairs = (codes & np.uint8(15)).reshape(-1, 4, 2, 32)
    low: U8 = pairs[:, :, 0] | (pairs[:, :, 1] << np.uint8(4))
    return low.reshape(-1, 128)


def quantise_q4_k(values: F32) -> U8:
    """(blocks, 144) from any number of whole super-blocks."""
    head, codes = _fit_affine(values, 15)
    return np.concatenate([head, _low_bits(codes)], 1)


def quantise_q5_k(values: F32) -> U8:
    """(blocks, 176) from any number of whole super-blocks."""
    head, codes = _fit_affine(values, 31)
    high = np.zeros((len(codes), 32), np.uint8)
    for sub_block in range(8):
        high |= ((codes[:, sub_block] >> 4) & 1) << sub_block
    return np.concatenate([head, high, _low_bits(codes)], 1)


def quantise_q6_k(values: F32) -> U8:
    """(blocks, 210) from any number of whole super-blocks."""
    blocks = values.reshape(-1, 16, 16)
    largest = np.abs(blocks).argmax(-1)
    scale = np.take_along_axis(blocks, largest[..., None], -1)[..., 0] / -32.0  # signed
    d = (np.abs(scale).max(-1) / 127.0).astype("<f2").astype(np.float32)
    scales = np.clip(np.rint(scale * _inverse(d)[:, None]), -128, 127).astype(np.int8)
    step = d[:, None] * scales
    codes = (np.clip(np.rint(blocks * _inverse(step)[..., None]), -32, 31) + 32).astype(np.uint8)
    quarter = codes.reshape(-1, 2, 4, 32).swapaxes(0, 2).swapaxes(1, 2)  # (4, blocks, 2, 32)
    low = np.stack([(quarter[0] & 15) | ((quarter[2] & 15) << 4), (quarter[1] & 15) | ((quarter[3] & 15) << 4)], 2)
    high = (quarter[0] >> 4) | ((quarter[1] >> 4) << 2) | ((quarter[2] >> 4) << 4) | ((quarter[3] >> 4) << 6)
    return np.concatenate(
        [low.reshape(-1, 128), high.reshape(-1, 64), scales.view(np.uint8).reshape(-1, 16), _f16_bytes(d)], 1
    )


K_ENCODERS: dict[Type, Callable[[F32], U8]] = {
    Type.Q4_K: quantise_q4_k,
    Type.Q5_K: quantise_q5_k,
    Type.Q6_K: quantise_q6_k,
}
