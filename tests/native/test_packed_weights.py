"""Packed weights are the same weights: packing loses nothing, and all that is made of them has the bits that rows give.

Dots of packed rows meet their twin in test_quantised_types.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import twin_kernels as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from random_weights import BLOCKS, HALF_AT, random_rows, stored

import native

TYPES = sorted(HALF_AT)
UNQUANTISED = sorted(set(BLOCKS) - set(HALF_AT))


@pytest.fixture(autouse=True)
def isa_as_before() -> Iterator[None]:
    before = native.isa()
    yield
    native.use_isa(before)


def row_bytes(type_id: int, columns: int) -> int:
    block_columns, block_bytes = BLOCKS[type_id]
    return columns // block_columns * block_bytes


@pytest.mark.parametrize("type_id", TYPES)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 70), blocks=st.integers(1, 9))
@settings(max_examples=25)
def test_packing_and_unpacking_are_inverses(type_id: int, seed: int, rows: int, blocks: int) -> None:
    columns = blocks * BLOCKS[type_id][0]
    anything = np.random.default_rng(seed).integers(0, 256, rows * row_bytes(type_id, columns), dtype=np.uint8)
    packed, unpacked, again = (np.empty_like(anything) for _ in range(3))
    native.pack_rows(type_id, rows, columns, anything, packed)
    native.unpack_rows(type_id, rows, columns, packed, again)
    np.testing.assert_array_equal(again, anything)
    native.unpack_rows(type_id, rows, columns, anything, unpacked)
    native.pack_rows(type_id, rows, columns, unpacked, again)
    np.testing.assert_array_equal(again, anything)
    in_groups = rows // native.PACKED_ROWS * native.PACKED_ROWS * row_bytes(type_id, columns)
    np.testing.assert_array_equal(packed[in_groups:], anything[in_groups:])


@pytest.mark.parametrize("type_id", TYPES)
def test_dequantised_rows_are_the_same(type_id: int) -> None:
    rows, columns = 37, 512
    data = random_rows(np.random.default_rng(type_id), type_id, 2 * rows, columns)
    plain, packed = (stored(data, type_id, 2, rows, columns, packed=packed) for packed in (False, True))
    assert (plain.packed, packed.packed) == (False, True)
    some = np.array([36, 0, 15, 16, 31, 32, 5], np.int32)
    for matrix in range(2):
        found, expected = (weights.dequantise(matrix, some) for weights in (packed, plain))
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("types", "width", "hidden"),
    [((12, 12, 14), 256, 256), ((13, 14, 12), 512, 256), ((2, 3, 6), 288, 96), ((7, 8, 2), 32, 288),
     ((8, 30, 8), 64, 32), ((0, 1, 8), 40, 32), ((6, 7, 0), 96, 39)],
)  # fmt: skip
def test_experts_are_the_same(types: tuple[int, int, int], width: int, hidden: int, threads: int) -> None:
    """Rows that are no multiple of 16 come with unquantised types, whose columns are any number."""
    rng, experts, n = np.random.default_rng(width), 3, 45
    shapes = [(hidden, width), (hidden, width), (width, hidden)]
    data = [random_rows(rng, kind, experts * r, c, 0.001) for kind, (r, c) in zip(types, shapes, strict=True)]
    x = rng.standard_normal((n, width)).astype(np.float32)
    expert = np.repeat(np.arange(experts), [1, 40, 4]).astype(np.int32)
    entry = np.arange(n, dtype=np.int32)
    weight = rng.random(n).astype(np.float32)
    parts = [of_all.reshape(experts, -1) for of_all in data]
    expected = np.concatenate(
        [twin.expert((parts[0][e], parts[1][e], parts[2][e]), types, hidden, x[expert == e]) for e in range(experts)]
    )
    for packed in ((False,) * 3, (True,) * 3, (True, False, True), (False, True, False)):
        weights = [
            stored(of_all, kind, experts, *shape, packed=so)
            for of_all, kind, shape, so in zip(data, types, shapes, packed, strict=True)
        ]
        for isa in native.available_isas():
            native.use_isa(isa)
            singles = np.full((n, width), np.nan, np.float32)
            native.run_experts(
                native.Pool(threads), *weights, native.Rows(x), expert, entry, weight, entry, singles,
                np.zeros((0, width), np.int64),
            )  # fmt: skip
            same = singles.view(np.uint32) == (expected * weight[:, None]).view(np.uint32)
            assert same.all(), (isa, packed)


def test_what_cannot_be_packed_is_refused() -> None:
    rows, columns = 16, 256
    data = np.zeros(rows * row_bytes(8, columns), np.uint8)
    other = np.empty_like(data)
    frozen = np.empty_like(data)
    frozen.flags.writeable = False
    for move in (native.pack_rows, native.unpack_rows):
        move(8, rows, columns, data, other)
        for bad, match in (
            ((8, rows, columns, data[:-1], other), "source: bytes"),
            ((8, rows, columns, data, other[:-1]), "out: bytes"),
            ((8, rows, columns + 1, data, other), "multiple of 32"),
            ((8, rows, -32, data, other), "multiple of 32"),
            ((12, rows, 32, data, other), "multiple of 256"),
            ((8, 0, columns, data[:0], other[:0]), "rows: 1 or more"),
            ((8, -16, columns, data, other), "rows: 1 or more"),
            ((99, rows, columns, data, other), "99"),
            ((8, rows, columns, data, data), "overlap"),
        ):
            with pytest.raises(ValueError, match=match):
                move(*bad)
        both = np.zeros(2 * data.size, np.uint8)
        move(8, rows, columns, both[: data.size], both[data.size :])
        with pytest.raises(ValueError, match="overlap"):
            move(8, rows, columns, both[: data.size], both[data.size - 1 : -1])
        for kind in UNQUANTISED:
            floats = np.zeros(rows * row_bytes(kind, columns), np.uint8)
            with pytest.raises(ValueError, match="quantised"):
                move(kind, rows, columns, floats, np.empty_like(floats))
        for wrong in (data[::2], data.astype(np.int8), data.reshape(rows, -1)):
            with pytest.raises(TypeError):
                move(8, rows, columns, wrong, other)
        with pytest.raises(TypeError):
            move(8, rows, columns, data, frozen)


@pytest.mark.parametrize("kind", UNQUANTISED)
def test_no_weights_are_packed_floats(kind: int) -> None:
    floats = np.zeros(16 * row_bytes(kind, 64), np.uint8)
    with pytest.raises(ValueError, match="packed: only quantised types"):
        native.Weights(floats, kind, 1, 16, 64, packed=True)
