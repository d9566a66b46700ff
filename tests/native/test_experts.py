"""The expert network and the fixed-point combine."""

from __future__ import annotations

import numpy as np
import pytest
import twin_kernels as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from random_weights import BLOCKS, random_rows

import native

EXPERTS, WIDTH, HIDDEN = 5, 256, 256


class Layer:
    """Three random tensors of given types, as bytes and as Weights."""

    def __init__(self, types: tuple[int, int, int], seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        shapes = [(HIDDEN, WIDTH), (HIDDEN, WIDTH), (WIDTH, HIDDEN)]
        self.types = types
        self.data = [random_rows(rng, t, EXPERTS * r, c, 0.001) for t, (r, c) in zip(types, shapes, strict=True)]
        self.weights = [
            native.Weights(d, t, EXPERTS, r, c) for d, t, (r, c) in zip(self.data, types, shapes, strict=True)
        ]

    def twin(self, expert: int, x: np.ndarray) -> np.ndarray:
        parts = [d.reshape(EXPERTS, -1)[expert] for d in self.data]
        return twin.expert((parts[0], parts[1], parts[2]), self.types, HIDDEN, x)


def entries(rng: np.random.Generator, rows: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids = np.stack([rng.permutation(EXPERTS)[:k] for _ in range(rows)])
    row = np.repeat(np.arange(rows), k)
    order = np.lexsort((row, ids.ravel()))
    weight = rng.random(rows * k).astype(np.float32)
    return ids.ravel()[order].astype(np.int32), row[order].astype(np.int32), weight


@pytest.mark.parametrize(
    "types",
    [(12, 12, 14), (8, 8, 8), (0, 0, 0), (1, 12, 8), (12, 30, 0), (2, 3, 6), (7, 13, 2), (30, 6, 13), (13, 2, 1)],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_experts_are_their_twin_on_every_instruction_set(types: tuple[int, int, int], threads: int) -> None:
    rng = np.random.default_rng(7)
    layer, x = Layer(types), rng.standard_normal((6, WIDTH)).astype(np.float32)
    expert, row, weight = entries(rng, 6, 3)
    single = np.where(row == 5, np.cumsum(row == 5) - 1, -1 - row).astype(np.int32)  # row 5's entries each alone
    expected = np.zeros((6, WIDTH), np.int64)
    for e, r, w, s in zip(expert, row, weight, single, strict=True):
        if s < 0:
            expected[r] += twin.to_fixed(w * layer.twin(e, x[r : r + 1])[0])
    for isa in native.available_isas():
        native.use_isa(isa)
        singles, sums = np.zeros((3, WIDTH), np.float32), np.zeros((6, WIDTH), np.int64)
        native.run_experts(
            native.Pool(threads), *layer.weights, native.Rows(x), expert, row, weight, single, singles, sums
        )
        np.testing.assert_array_equal(sums, expected)
        for e, w, s in zip(expert[single >= 0], weight[single >= 0], single[single >= 0], strict=True):
            alone = w * layer.twin(e, x[5:])[0]
            np.testing.assert_array_equal(singles[s].view(np.uint32), alone.view(np.uint32))


@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 18))
@settings(max_examples=25, deadline=None)
def test_any_split_of_the_entries_gives_the_same_sums(seed: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    layer, rows = Layer((12, 12, 14)), native.Rows(rng.standard_normal((6, WIDTH)).astype(np.float32))
    expert, row, weight = entries(rng, 6, 3)
    nothing, pool = np.zeros((0, WIDTH), np.float32), native.Pool(2)

    def run(part: np.ndarray, sums: np.ndarray) -> None:
        part = np.sort(part)
        slot = (-1 - row[part]).astype(np.int32)
        native.run_experts(pool, *layer.weights, rows, expert[part], row[part], weight[part], slot, nothing, sums)

    whole, parts = np.zeros((2, 6, WIDTH), np.int64)
    run(np.arange(18), whole)
    shuffled = rng.permutation(18)
    run(shuffled[cut:], parts)
    run(shuffled[:cut], parts)
    np.testing.assert_array_equal(parts, whole)


def test_quantised_rows_from_the_wire_give_the_same_bits() -> None:
    rng = np.random.default_rng(9)
    layer, rows = Layer((12, 12, 14)), native.Rows(rng.standard_normal((2, WIDTH)).astype(np.float32))
    codes, scales = (np.array(a) for a in rows.quantise())
    with pytest.raises(ValueError, match="no fp32 values"):
        native.Rows.quantised(codes, scales).values()
    np.testing.assert_array_equal(native.Rows(rows.values()).quantise()[0], codes)
    expert, row = np.array([0, 1], np.int32), np.array([0, 1], np.int32)
    answers = []
    for form in (rows, native.Rows.quantised(codes, scales)):
        singles = np.zeros((2, WIDTH), np.float32)
        native.run_experts(
            native.Pool(1), *layer.weights, form, expert, row, np.ones(2, np.float32), row, singles,
            np.zeros((0, WIDTH), np.int64),
        )  # fmt: skip
        answers.append(singles)
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("weight", [np.float32(3e38), np.float32(np.nan), np.float32(np.inf)])
def test_an_entry_out_of_range_is_named(weight: np.float32) -> None:
    rng = np.random.default_rng(11)
    layer, rows = Layer((8, 8, 8)), native.Rows(rng.standard_normal((4, WIDTH)).astype(np.float32) * 100)
    expert = np.array([0, 1, 2, 3], np.int32)
    slot = np.arange(4, dtype=np.int32)
    with pytest.raises(native.EntryRangeError) as error:
        native.run_experts(
            native.Pool(2), *layer.weights, rows, expert, slot, np.array([1e-6, weight, weight, 1e-6], np.float32),
            slot, np.zeros((4, WIDTH), np.float32), np.zeros((0, WIDTH), np.int64),
        )  # fmt: skip
    assert error.value.args[1] == 1


def test_sizes_are_checked_before_anything_is_read() -> None:
    layer, rows = Layer((8, 8, 8)), native.Rows(np.zeros((2, WIDTH), np.float32))
    good = {
        "entry_expert": np.array([0, 4], np.int32), "entry_row": np.array([0, 1], np.int32),
        "entry_weight": np.ones(2, np.float32), "entry_slot": np.array([0, -1], np.int32),
        "singles": np.zeros((1, WIDTH), np.float32), "sums": np.zeros((1, WIDTH), np.int64),
    }  # fmt: skip
    pool = native.Pool(1)
    native.run_experts(pool, *layer.weights, rows, **good)
    for change in (
        {"entry_expert": np.array([0, 5], np.int32)}, {"entry_expert": np.array([1, 0], np.int32)},
        {"entry_expert": np.array([-1, 0], np.int32)}, {"entry_row": np.array([0, 2], np.int32)},
        {"entry_slot": np.array([1, -1], np.int32)}, {"entry_slot": np.array([0, -2], np.int32)},
        {"entry_weight": np.ones(3, np.float32)}, {"singles": np.zeros((1, WIDTH + 1), np.float32)},
        {"entry_expert": np.array([0, 4], np.int64)}, {"sums": np.zeros((1, WIDTH), np.int32)},
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            native.run_experts(pool, *layer.weights, rows, **(good | change))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bytes"):
        native.Weights(layer.data[0][:-1], 8, EXPERTS, HIDDEN, WIDTH)
    with pytest.raises(ValueError, match="-128"):
        native.Rows.quantised(np.full((1, 32), -128, np.int8), np.ones((1, 1), np.float32))


@given(st.lists(st.floats(-4194303, 4194303, width=32), min_size=1, max_size=31))
@settings(max_examples=100, deadline=None)
def test_combine_is_the_twin_in_any_order(values: list[float]) -> None:
    column = np.array(values, np.float32)[:, None]
    sums, backwards = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
    row, none = np.zeros(1, np.int32), np.empty(0, np.int32)
    nothing = none, np.empty((0, 1, 6), np.uint8), np.empty((0, 1), np.int64)
    for one, other in zip(column, column[::-1], strict=True):
        native.add_answer(sums, row, row, one[None], *nothing)
        native.add_answer(backwards, row, row, other[None], *nothing)
    assert sums == backwards == twin.to_fixed(column).sum(0, keepdims=True)
    x = np.full((1, 1), 0.25, np.float32)
    native.add_combined(x, sums)
    assert x == np.float32(0.25) + twin.from_fixed(backwards)
    assert sums == 0


@given(st.lists(st.integers(-(2**47), 2**47 - 1), min_size=1, max_size=20))
def test_48_bits_round_trip(values: list[int]) -> None:
    sums = np.array(values, np.int64).reshape(1, -1)
    packed = native.pack48(sums)
    assert packed is not None
    assert packed.shape == (1, len(values), 6)
    np.testing.assert_array_equal(twin.unpack48(packed), sums)


@pytest.mark.parametrize("value", [2**47, -(2**47) - 1, 31 * 2**58])
def test_more_than_48_bits_are_not_packed(value: int) -> None:
    assert native.pack48(np.array([[0, value]], np.int64)) is None


@pytest.mark.parametrize("type_id", sorted(BLOCKS))
def test_a_row_alone_and_among_others(type_id: int) -> None:
    rng = np.random.default_rng(13)
    weights = native.Weights(random_rows(rng, type_id, 24, 512), type_id, 1, 24, 512)
    x = rng.standard_normal((13, 512)).astype(np.float32)
    together, alone = np.empty((13, 24), np.float32), np.empty((1, 24), np.float32)
    native.matmul(native.Pool(2), weights, 0, native.Rows(x), together)
    for r in range(13):
        native.matmul(native.Pool(1), weights, 0, native.Rows(x[r : r + 1].copy()), alone)
        np.testing.assert_array_equal(together[r : r + 1], alone)
