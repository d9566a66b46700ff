"""The CUDA kernels' text, run on this processor (emulated_device): the same bits as the native kernels."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import EmulatedDevice, emulated_device
from random_weights import BLOCKS, random_rows

import native
from native import cuda
from native.cuda.device import NO_FAULT, uploaded
from native.cuda.experts import TOGETHER, tiles_of
from native.cuda.rows import TYPE_NAMES

TYPES = sorted(BLOCKS)
NAMES = [TYPE_NAMES[kind] for kind in TYPES]


@pytest.fixture
def device() -> EmulatedDevice:
    return emulated_device()


def rows_on(device: cuda.Device, x: np.ndarray) -> cuda.CudaRows:
    """Values and codes of `x`, all finite."""
    fault = uploaded(device, np.full(1, NO_FAULT, np.int32))
    rows = cuda.CudaRows.of_values(device, uploaded(device, x))
    rows.quantise(fault)
    assert device.download(fault)[0] == NO_FAULT
    return rows


@pytest.mark.parametrize("columns", [32, 256, 1056])
def test_codes_and_scales(device: EmulatedDevice, columns: int) -> None:
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((5, columns)).astype(np.float32)
    x[1, :32] = 0
    x[2] *= np.float32(1e-42)  # subnormal
    x[3] *= np.float32(1e38)
    codes, scales = native.Rows(x).quantise()
    rows = rows_on(device, x)
    assert rows.codes is not None
    assert rows.scales is not None
    np.testing.assert_array_equal(device.download(rows.codes), codes)
    np.testing.assert_array_equal(device.download(rows.scales).view(np.uint32), scales.view(np.uint32))


def test_the_first_row_that_is_not_finite_is_noted(device: EmulatedDevice) -> None:
    x = np.ones((6, 64), np.float32)
    x[4, 3], x[2, 40] = np.nan, np.inf
    fault = uploaded(device, np.full(1, NO_FAULT, np.int32))
    cuda.CudaRows.of_values(device, uploaded(device, x)).quantise(fault)
    assert device.download(fault)[0] == 2


@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize("kind", TYPES, ids=NAMES)
def test_matmul(device: EmulatedDevice, kind: int, count: int) -> None:
    rng = np.random.default_rng(kind)
    for rows, columns in ((19, 256), (3, 1536), (9, 288)):
        if columns % BLOCKS[kind][0]:
            continue
        data, x = random_rows(rng, kind, rows, columns), rng.standard_normal((count, columns)).astype(np.float32)
        expected = np.empty((count, rows), np.float32)
        native.matmul(native.Pool(1), native.Weights(data, kind, 1, rows, columns), 0, native.Rows(x), expected)
        out = device.empty((count, rows), np.float32)
        cuda.matmul(device, cuda.CudaWeights(device, data, kind, rows, columns), rows_on(device, x), out)
        np.testing.assert_array_equal(device.download(out).view(np.uint32), expected.view(np.uint32))


EXPERTS, WIDTH, HIDDEN = 5, 256, 288


class Layer:
    """Random experts here and on a device."""

    def __init__(self, device: cuda.Device, types: tuple[int, int, int], hidden: int = HIDDEN) -> None:
        rng = np.random.default_rng(sum(types))
        shapes = [(hidden, WIDTH), (hidden, WIDTH), (WIDTH, hidden)]
        data = [random_rows(rng, kind, EXPERTS * r, c, 0.001) for kind, (r, c) in zip(types, shapes, strict=True)]
        self.weights = [
            native.Weights(d, kind, EXPERTS, r, c) for d, kind, (r, c) in zip(data, types, shapes, strict=True)
        ]
        self.table = cuda.ExpertTable(device, *types, EXPERTS)
        self._kept = []
        for expert in range(EXPERTS):
            parts = [uploaded(device, each.reshape(EXPERTS, -1)[expert].copy()) for each in data]
            self._kept.append(parts)  # memory of what is admitted
            self.table.admit(expert, *parts)


def entries(rng: np.random.Generator, rows: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Expert, row, weight and slot of k experts for each row; those of the last row go to single rows."""
    ids = np.stack([rng.permutation(EXPERTS)[:k] for _ in range(rows)])
    row = np.repeat(np.arange(rows), k)
    order = np.lexsort((row, ids.ravel()))
    row = row[order]
    last = row == rows - 1
    slot = np.where(last, np.cumsum(last) - 1, -1 - row)
    weight = rng.random(rows * k).astype(np.float32)
    return ids.ravel()[order].astype(np.int32), row.astype(np.int32), weight, slot.astype(np.int32)


@pytest.mark.parametrize("rows", [1, 2, 20])
@pytest.mark.parametrize(
    "types",
    [(12, 12, 8), (8, 8, 8), (12, 12, 0), (0, 0, 0), (1, 12, 8), (12, 30, 1), (2, 3, 6), (7, 13, 2), (14, 14, 7)],
)
def test_experts(device: EmulatedDevice, types: tuple[int, int, int], rows: int) -> None:
    rng = np.random.default_rng(rows)
    layer, x = Layer(device, types), rng.standard_normal((rows, WIDTH)).astype(np.float32)
    plan = entries(rng, rows, 3)
    singles, sums = np.zeros((3, WIDTH), np.float32), np.zeros((rows, WIDTH), np.int64)
    native.run_experts(native.Pool(1), *layer.weights, native.Rows(x), *plan, singles, sums)
    on_singles, on_sums = uploaded(device, np.zeros_like(singles)), uploaded(device, np.zeros_like(sums))
    network = cuda.FeedForward(device, WIDTH, HIDDEN)
    network.run(layer.table, cuda.CudaRows.of_values(device, uploaded(device, x)), *plan, on_singles, on_sums)
    network.check()
    np.testing.assert_array_equal(device.download(on_singles).view(np.uint32), singles.view(np.uint32))
    np.testing.assert_array_equal(device.download(on_sums), sums)


@pytest.mark.parametrize("types", [(12, 12, 14), (14, 14, 14)])
def test_experts_of_whole_blocks(device: EmulatedDevice, types: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(3)
    layer, x = Layer(device, types, hidden=512), rng.standard_normal((4, WIDTH)).astype(np.float32)
    plan = entries(rng, 4, 2)
    singles, sums = np.zeros((2, WIDTH), np.float32), np.zeros((4, WIDTH), np.int64)
    native.run_experts(native.Pool(1), *layer.weights, native.Rows(x), *plan, singles, sums)
    on_singles, on_sums = uploaded(device, np.zeros_like(singles)), uploaded(device, np.zeros_like(sums))
    network = cuda.FeedForward(device, WIDTH, 512)
    network.run(layer.table, cuda.CudaRows.uploaded(device, native.Rows(x), True), *plan, on_singles, on_sums)
    network.check()
    np.testing.assert_array_equal(device.download(on_singles).view(np.uint32), singles.view(np.uint32))
    np.testing.assert_array_equal(device.download(on_sums), sums)


def test_the_lowest_bad_entry_is_named_and_then_forgotten(device: EmulatedDevice) -> None:
    rng = np.random.default_rng(5)
    layer, x = Layer(device, (8, 8, 8)), rng.standard_normal((4, WIDTH)).astype(np.float32)
    expert, row, weight, slot = entries(rng, 4, 2)
    bad = weight.copy()
    bad[[3, 6]] = np.float32(3e38)
    singles, sums = device.empty((2, WIDTH), np.float32), uploaded(device, np.zeros((4, WIDTH), np.int64))
    network = cuda.FeedForward(device, WIDTH, HIDDEN)
    rows = cuda.CudaRows.uploaded(device, native.Rows(x), True)
    network.run(layer.table, rows, expert, row, bad, slot, singles, sums)
    with pytest.raises(native.EntryRangeError) as here:
        network.check()
    with pytest.raises(native.EntryRangeError) as there:
        native.run_experts(
            native.Pool(1),
            *layer.weights,
            native.Rows(x),
            expert,
            row,
            bad,
            slot,
            np.zeros((2, WIDTH), np.float32),
            np.zeros((4, WIDTH), np.int64),
        )
    assert here.value.args == there.value.args
    network.run(layer.table, rows, expert, row, weight, slot, singles, sums)
    network.check()


def test_tiles_cover_every_entry_once() -> None:
    rng = np.random.default_rng(9)
    for _ in range(50):
        expert = np.sort(rng.integers(0, 6, rng.integers(1, 60))).astype(np.int32)
        tiles = tiles_of(expert)
        covered = [(e, i) for e, first, count in tiles.T.tolist() for i in range(first, first + count)]
        assert covered == list(zip(expert.tolist(), range(len(expert)), strict=True))
        assert tiles[2].max() <= TOGETHER


def test_kernels_refuse_what_they_do_not_declare(device: EmulatedDevice) -> None:
    x = uploaded(device, np.zeros(4, np.float32))
    with pytest.raises(TypeError, match="add: long long expected"):
        device.launch("add", (1, 1, 1), 32, x, x, np.int32(4))
    with pytest.raises(TypeError, match=r"add: float \* expected, found int64"):
        device.launch("add", (1, 1, 1), 32, x, uploaded(device, np.zeros(4, np.int64)), np.int64(4))
