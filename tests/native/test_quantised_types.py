"""Row dots of every quantised type against their NumPy twin, over all that a block and its activations may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import twin_kernels as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from random_weights import BLOCKS, HALF_AT, stored

import native

TYPES = sorted(HALF_AT)
F32, I8, U8 = NDArray[np.float32], NDArray[np.int8], NDArray[np.uint8]
Random = np.random.Generator

HALVES: dict[str, Callable[[Random, int], NDArray[np.generic]]] = {
    "normal": lambda rng, n: rng.normal(0, 0.01, n).astype(np.float16),
    "largest": lambda rng, n: rng.choice(np.array([65504, -65504], np.float16), n),
    "zeros": lambda rng, n: rng.choice(np.array([0.0, -0.0], np.float16), n),
    "subnormal": lambda rng, n: (rng.integers(0, 1024, n) | rng.integers(0, 2, n) << 15).astype(np.uint16),
    "all finite": lambda rng, n: (rng.integers(0, 0x7C00, n) | rng.integers(0, 2, n) << 15).astype(np.uint16),
}
"""fp16 scales and minimums, by what they are like."""

BYTES: dict[str, Callable[[Random, int], U8]] = {
    "random": lambda rng, n: rng.integers(0, 256, n, dtype=np.uint8),
    "lowest": lambda rng, n: np.zeros(n, np.uint8),
    "highest": lambda rng, n: np.full(n, 0xFF, np.uint8),
    "extremes": lambda rng, n: rng.choice(np.array([0x00, 0x0F, 0x7F, 0x80, 0xF0, 0xFF], np.uint8), n),
}
"""All other bytes of a block: codes, and the small scales of some types."""

CODES: dict[str, Callable[[Random, int], I8]] = {
    "random": lambda rng, n: rng.integers(-127, 128, n).astype(np.int8),
    "highest": lambda rng, n: np.full(n, 127, np.int8),
    "lowest": lambda rng, n: np.full(n, -127, np.int8),
    "extremes": lambda rng, n: rng.choice(np.array([-127, 127], np.int8), n),
}
"""Activations."""


@pytest.fixture(autouse=True)
def isa_as_before() -> Iterator[None]:
    before = native.isa()
    yield
    native.use_isa(before)


def weights(rng: Random, type_id: int, rows: int, columns: int, halves: str, rest: str) -> U8:
    block_columns, block_bytes = BLOCKS[type_id]
    count = rows * columns // block_columns
    blocks = BYTES[rest](rng, count * block_bytes).reshape(count, block_bytes)
    for at in HALF_AT[type_id]:
        blocks[:, at : at + 2] = HALVES[halves](rng, count).view(np.uint8).reshape(count, 2)
    return blocks.reshape(-1)


def check(type_id: int, data: U8, rows: int, codes: I8, scales: F32, *, threads: int = 1, behind: bytes = b"") -> None:
    """On every instruction set, packed or not, the twin's bits."""
    columns = codes.shape[1]
    expected = twin.quantised_dot(twin.DECODERS[type_id](data, columns), codes, scales)
    assert np.isfinite(expected).all()
    pool, acts = native.Pool(threads), native.Rows.quantised(codes, scales)
    for packed in (False, True):
        weights = stored(data, type_id, 1, rows, columns, packed=packed, behind=behind)
        for isa in native.available_isas():
            native.use_isa(isa)
            found = np.full((len(codes), rows), np.nan, np.float32)
            native.matmul(pool, weights, 0, acts, found)
            np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32), f"{isa}, {packed=}")


@pytest.mark.parametrize("type_id", TYPES)
@given(data=st.data())
@settings(max_examples=60)
def test_every_dot_is_the_twins(type_id: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    rows, n = data.draw(st.integers(1, 50), "rows"), data.draw(st.integers(1, 5) | st.integers(1, 70), "activations")
    columns = data.draw(st.integers(1, 768 // BLOCKS[type_id][0]), "blocks") * BLOCKS[type_id][0]
    halves, rest = data.draw(st.sampled_from(sorted(HALVES))), data.draw(st.sampled_from(sorted(BYTES)))
    codes = CODES[data.draw(st.sampled_from(sorted(CODES)))](rng, n * columns).reshape(n, columns)
    exponent = data.draw(st.integers(-140, 60), "exponent of the activation scales")
    scales = np.ldexp(rng.random((n, columns // 32)), exponent).astype(np.float32)
    scales[rng.random(scales.shape) < 0.1] = 0
    rows_of_bytes = weights(rng, type_id, rows, columns, halves, rest)
    check(type_id, rows_of_bytes, rows, codes, scales, threads=data.draw(st.integers(1, 2), "threads"))


@pytest.mark.parametrize("type_id", TYPES)
@pytest.mark.parametrize("rest", sorted(BYTES))
@pytest.mark.parametrize("acts", sorted(CODES))
def test_extreme_codes_do_not_overflow(type_id: int, rest: str, acts: str) -> None:
    rng = np.random.default_rng(1)
    codes = CODES[acts](rng, 5 * 256).reshape(5, 256)
    check(type_id, weights(rng, type_id, 25, 256, "largest", rest), 25, codes, np.ones((5, 8), np.float32))


@pytest.mark.parametrize("type_id", [kind for kind in TYPES if BLOCKS[kind][0] == 32])
@pytest.mark.parametrize("rows", [1, 8, 11, 16, 32])
def test_nothing_behind_the_last_short_block_is_taken(type_id: int, rows: int) -> None:
    """The same bits whatever follows the weights and the activations in memory."""
    rng = np.random.default_rng(rows)
    columns, behind = 160, 4096
    data = weights(rng, type_id, rows, columns, "normal", "random")
    codes = CODES["random"](rng, 2 * columns).reshape(2, columns)
    for fill in (0x00, 0x7F, 0xFF):  # as halves: 0, NaN, NaN
        check(type_id, data, rows, codes, np.ones((2, columns // 32), np.float32), behind=bytes([fill]) * behind)
