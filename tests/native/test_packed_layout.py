"""Packed rows lie as docs/packs.md says, whose tables are the NumPy twin's; unpacking gives back what was packed."""

from __future__ import annotations

import numpy as np
import packed_rows
import pytest

import native
from protocol.pack import GROUP_ROWS, PACKABLE
from protocol.quant_types import TensorType

TYPES = sorted(PACKABLE)


def random_matrix(kind: TensorType, rows: int, columns: int) -> packed_rows.Bytes:
    return np.random.default_rng(rows * columns + kind).integers(0, 256, rows * kind.row_bytes(columns), np.uint8)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 48, 63])
@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_packed_rows_are_the_twins_and_come_back(kind: TensorType, rows: int) -> None:
    columns = 3 * kind.block_columns
    source = random_matrix(kind, rows, columns)
    packed, unpacked = np.empty_like(source), np.empty_like(source)
    native.pack_rows(int(kind), rows, columns, source, packed)
    np.testing.assert_array_equal(packed, packed_rows.packed(kind, rows, columns, source))
    native.unpack_rows(int(kind), rows, columns, packed, unpacked)
    np.testing.assert_array_equal(unpacked, source)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_groups_are_packed_alike_wherever_they_are(kind: TensorType) -> None:
    """So a matrix can be packed piece by piece, and a row's bytes lie in its group's place."""
    columns, rows = 2 * kind.block_columns, 40
    source = random_matrix(kind, rows, columns)
    whole = np.empty_like(source)
    native.pack_rows(int(kind), rows, columns, source, whole)
    for start in range(0, rows, GROUP_ROWS):
        count = min(GROUP_ROWS, rows - start)
        at = slice(start * kind.row_bytes(columns), (start + count) * kind.row_bytes(columns))
        piece = np.empty_like(source[at])
        native.pack_rows(int(kind), count, columns, source[at], piece)
        np.testing.assert_array_equal(whole[at], piece)


def test_both_sides_know_one_size_of_groups() -> None:
    assert native.PACKED_ROWS == GROUP_ROWS


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16, TensorType.BF16], ids=lambda kind: kind.name)
def test_types_that_are_not_packed_are_refused(kind: TensorType) -> None:
    data = np.zeros(kind.row_bytes(32) * 16, np.uint8)
    with pytest.raises(ValueError, match="quantised"):
        native.pack_rows(int(kind), 16, 32, data, np.empty_like(data))
