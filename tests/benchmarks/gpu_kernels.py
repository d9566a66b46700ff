"""Kernels on a GPU, from its memory and not its caches: row dots and layers of experts, beside a plain copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmark_page import GrowingTable
from paired_figures import Spread, spread
from random_weights import random_rows

import native
from native import cuda
from native.cuda.device import uploaded
from protocol.layout import slot_size
from protocol.messages import F32, I32
from protocol.quant_types import RUNNABLE, TensorType

Types = tuple[TensorType, TensorType, TensorType]
Launch = Callable[[], None]

Q4_K_M: Types = (TensorType.Q4_K, TensorType.Q4_K, TensorType.Q6_K)
FIRST = ("Q4_K", "Q6_K", "Q8_0", "F16", "F32")
"""Types that are looked at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is multiplied."""

    bytes: int = 1 << 28
    """Of one matrix, and of a copy; there are `sets` of them, so that no cache holds what comes again."""
    sets: int = 4
    width: int = 2048
    hidden: int = 768
    experts: int = 128
    used: int = 8
    launches: int = 32
    """In a row, between two waits."""
    rounds: int = 7


TINY = Sizes(bytes=1 << 16, sets=2, width=256, hidden=256, experts=4, used=2, launches=4, rounds=2)
"""To try this out on the emulated device."""


def kernels(device: cuda.Device, sizes: Sizes) -> None:
    """Prints two tables."""
    print(
        f"{device.description}. Medians and quartiles of {sizes.rounds} rounds of {sizes.launches} launches in a row.\n"
    )
    rates = GrowingTable(["what", "us", "GB/s", "of the copy"])
    copied = _copy(device, sizes)
    of_copy = 2 * sizes.bytes / copied.median
    rates.add([f"copy of {sizes.bytes >> 20} MiB, read and written", _us(copied), of_copy / 1e9, 1.0])
    for kind in _kinds():
        if sizes.width % kind.block_columns == 0:
            taken, size = _matmul(device, sizes, kind)
            rate = size / taken.median
            rates.add([f"{kind.name}, 1 row", _us(taken), rate / 1e9, rate / of_copy])
    print(
        f"\nOne layer: {sizes.experts} experts of {sizes.width} x {sizes.hidden}, {sizes.used} to a row, "
        f"{sizes.sets} layers in turn.\n"
    )
    layers = GrowingTable(["gate, up, down", "rows", "experts visited", "us a layer", "GB/s of weights", "of the copy"])
    for types in (Q4_K_M, *((kind, kind, kind) for kind in _kinds())):
        if any(columns % kind.block_columns for kind in types for columns in (sizes.width, sizes.hidden)):
            continue
        experts = _Experts(device, sizes, types)
        for rows in (1, 64):
            taken, visited = experts.layer(rows)
            rate = visited * experts.bytes / taken.median
            names = ", ".join(kind.name for kind in types)
            layers.add([names, rows, round(visited, 1), _us(taken), rate / 1e9, rate / of_copy])


def seconds_each(device: cuda.Device, launches: Iterable[Launch], rounds: int) -> Spread:
    """Of one launch among all of them in a row, waited for at the end."""
    launches = list(launches)
    for launch in launches:
        launch()
    device.finish()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        for launch in launches:
            launch()
        device.finish()
        times.append((time.perf_counter() - began) / len(launches))
    return spread(times)


def _kinds() -> list[TensorType]:
    first = [TensorType[name] for name in FIRST]
    return first + sorted(RUNNABLE - set(first))


def _us(taken: Spread) -> str:
    return str(Spread(median=taken.median * 1e6, low=taken.low * 1e6, high=taken.high * 1e6, count=taken.count))


def _copy(device: cuda.Device, sizes: Sizes) -> Spread:
    arrays = [device.empty((sizes.bytes,), np.uint8) for _ in range(sizes.sets)]
    for array in arrays:
        device.zero(array)
    pairs = [(arrays[n % sizes.sets], arrays[(n + 1) % sizes.sets]) for n in range(sizes.launches)]
    return seconds_each(device, [_copier(*pair) for pair in pairs], sizes.rounds)


def _copier(source: Any, target: Any) -> Launch:
    if isinstance(target, np.ndarray):  # an emulated device's
        return lambda: np.copyto(target, source)
    return lambda: target.data.copy_from_device_async(source.data, source.nbytes)


def _matmul(device: cuda.Device, sizes: Sizes, kind: TensorType) -> tuple[Spread, int]:
    """And how many bytes of weights there are."""
    rng = np.random.default_rng(1)
    rows = sizes.bytes // kind.row_bytes(sizes.width)
    part = random_rows(rng, int(kind), 64, sizes.width)
    data = np.resize(part, kind.row_bytes(sizes.width) * rows)  # repeated: only the reading counts
    matrices = [cuda.CudaWeights(device, data, int(kind), rows, sizes.width) for _ in range(sizes.sets)]
    taken = _activations(device, rng, 1, sizes.width, not kind.is_float)
    out = device.empty((1, rows), np.float32)
    launches = [_multiplier(device, matrices[n % sizes.sets], taken, out) for n in range(sizes.launches)]
    return seconds_each(device, launches, sizes.rounds), len(data)


def _multiplier(device: cuda.Device, matrix: cuda.CudaWeights, rows: cuda.CudaRows, out: cuda.Array) -> Launch:
    return lambda: cuda.matmul(device, matrix, rows, out)


def _activations(
    device: cuda.Device, rng: np.random.Generator, rows: int, width: int, quantised: bool
) -> cuda.CudaRows:
    values: F32 = rng.standard_normal((rows, width)).astype(np.float32)
    return cuda.CudaRows.uploaded(device, native.Rows(values), quantised)


class _Experts:
    """Layers of random experts on the device."""

    def __init__(self, device: cuda.Device, sizes: Sizes, types: Types) -> None:
        self._device, self._sizes, self._types = device, sizes, types
        rng = np.random.default_rng(2)
        shapes = [(sizes.hidden, sizes.width), (sizes.hidden, sizes.width), (sizes.width, sizes.hidden)]
        matrices = [random_rows(rng, int(kind), *shape, 0.001) for kind, shape in zip(types, shapes, strict=True)]
        self.bytes = sum(matrix.nbytes for matrix in matrices)
        starts = np.cumsum([0, *(slot_size(matrix.nbytes) for matrix in matrices)]).tolist()
        blob = np.zeros(starts[-1], np.uint8)
        for start, matrix in zip(starts, matrices, strict=False):
            blob[start : start + len(matrix)] = matrix
        host = np.tile(blob, (sizes.experts, 1))  # the same numbers in other places: only the reading counts
        self._memory = [uploaded(device, host) for _ in range(sizes.sets)]
        self._tables = [self._table(memory, starts, matrices) for memory in self._memory]
        self._network = cuda.FeedForward(device, sizes.width, sizes.hidden)

    def layer(self, rows: int) -> tuple[Spread, float]:
        """Time of one layer for so many rows, routed at random, and how many experts it visits."""
        sizes, rng = self._sizes, np.random.default_rng(rows)
        quantised = not (self._types[0].is_float or self._types[1].is_float)
        taken = _activations(self._device, rng, rows, sizes.width, quantised)
        singles = self._device.empty((0, sizes.width), np.float32)
        sums = self._device.empty((rows, sizes.width), np.int64)
        self._device.zero(sums)
        routes = [_routed(rng, rows, sizes) for _ in range(sizes.launches)]
        launches = [
            self._launcher(self._tables[number % sizes.sets], taken, route, singles, sums)
            for number, route in enumerate(routes)
        ]
        measured = seconds_each(self._device, launches, sizes.rounds)
        self._network.check()
        return measured, float(np.mean([len(np.unique(expert)) for expert, _ in routes]))

    def _launcher(
        self,
        table: cuda.ExpertTable,
        rows: cuda.CudaRows,
        route: tuple[I32, I32],
        singles: cuda.Array,
        sums: cuda.Array,
    ) -> Launch:
        expert, row = route
        weight = np.full(len(row), 1e-3, np.float32)  # sums must not overflow in thousands of runs
        slot = -1 - row
        return lambda: self._network.run(table, rows, expert, row, weight, slot, singles, sums)

    def _table(self, memory: cuda.Array, starts: Sequence[int], matrices: Sequence[Any]) -> cuda.ExpertTable:
        gate, up, down = self._types
        table = cuda.ExpertTable(self._device, gate, up, down, self._sizes.experts)
        for expert in range(self._sizes.experts):
            slot = memory[expert : expert + 1].reshape(-1)
            parts = [slot[at : at + len(matrix)] for at, matrix in zip(starts, matrices, strict=False)]
            table.admit(expert, parts[0], parts[1], parts[2])
        return table


def _routed(rng: np.random.Generator, rows: int, sizes: Sizes) -> tuple[I32, I32]:
    """Experts and rows of entries, ascending."""
    expert = np.concatenate([rng.permutation(sizes.experts)[: sizes.used] for _ in range(rows)])
    row = np.repeat(np.arange(rows), sizes.used)
    order = np.lexsort((row, expert))
    return expert[order].astype(np.int32), row[order].astype(np.int32)
