"""Matrices placed elsewhere than in their tensor."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import native
from protocol.messages import F32, U8

TYPE_F32 = 0


class Copy(np.ndarray):
    """An array that can be watched."""


def tensor() -> tuple[F32, native.Weights]:
    """Three matrices (2, 4) whose numbers are all different, and as weights."""
    values = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    return values, native.Weights(values.reshape(-1).view(np.uint8), TYPE_F32, 3, 2, 4)


def both_rows(weights: native.Weights, matrix: int) -> F32:
    return weights.dequantise(matrix, np.array([0, 1], np.int32))


def bytes_of(values: F32) -> U8:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def test_a_placed_matrix_is_read_from_its_copy_and_the_others_from_the_tensor() -> None:
    values, weights = tensor()
    weights.place(1, bytes_of(values[1] + 100))
    assert [weights.placed(matrix) for matrix in range(3)] == [False, True, False]
    np.testing.assert_array_equal(both_rows(weights, 1), values[1] + 100)
    np.testing.assert_array_equal(both_rows(weights, 0), values[0])
    weights.unplace(1)
    assert not weights.placed(1)
    np.testing.assert_array_equal(both_rows(weights, 1), values[1])


def test_products_follow_too() -> None:
    values, weights = tensor()
    weights.place(2, bytes_of(values[0]))
    out = np.zeros((1, 2), np.float32)
    native.matmul(native.Pool(1), weights, 2, native.Rows(np.ones((1, 4), np.float32)), out)
    np.testing.assert_array_equal(out[0], values[0].sum(axis=1))


def test_a_copy_lives_as_long_as_it_is_placed() -> None:
    values, weights = tensor()
    copy = bytes_of(values[0]).copy().view(Copy)
    gone = weakref.ref(copy)
    weights.place(0, copy)
    del copy
    gc.collect()
    assert gone() is not None
    weights.unplace(0)
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("matrix", [-1, 3])
def test_there_are_no_other_matrices(matrix: int) -> None:
    values, weights = tensor()
    for call in (lambda: weights.place(matrix, bytes_of(values[0])), lambda: weights.unplace(matrix)):
        with pytest.raises(ValueError, match=f"matrix: 0 to 2 expected, found {matrix}"):
            call()
    with pytest.raises(ValueError, match="0 to 2"):
        weights.placed(matrix)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_copy_has_the_size_of_its_matrix(size: int) -> None:
    _, weights = tensor()
    with pytest.raises(ValueError, match=f"copy: bytes: 32 expected, found {size}"):
        weights.place(0, np.zeros(size, np.uint8))
    assert not weights.placed(0)
