"""Keys and values in a device's memory, and attention of a window over them."""

from __future__ import annotations

import numpy as np

from coordinator.sequence import Cache
from coordinator.window import Window
from native import cuda
from native.cuda.device import THREADS, blocks_of
from protocol.geometry import Geometry

BLOCK = 64
"""Positions that attention sums apart before it merges them."""
PARTIAL_BYTES = 64 << 20
"""Of blocks that are attended to at once, before they are merged: bounds memory, not the context."""


class CudaCache:
    """Keys and values of one sequence, all layers, up to `capacity` positions."""

    def __init__(self, device: cuda.Device, geometry: Geometry, capacity: int, kv: str) -> None:
        """`kv` is "f16" or "f32". DeviceError if there is no room."""
        self.capacity = capacity
        self.kv = kv
        self.geometry = geometry
        self.blocks = -(-capacity // BLOCK)
        lines = 2 * geometry.layers * geometry.kv_heads * self.blocks
        dtype = np.float16 if kv == "f16" else np.float32
        self._memory = device.empty((lines * BLOCK * geometry.head_dim,), dtype)
        self.address = device.address(self._memory)

    @property
    def bytes(self) -> int:
        """Of all positions, in whole blocks."""
        return self._memory.nbytes


class AttentionMemory:
    """What attention needs beside the caches, for windows of up to `rows` rows; used again by every step."""

    def __init__(self, device: cuda.Device, geometry: Geometry, rows: int) -> None:
        """DeviceError if there is no room."""
        each = rows * geometry.heads
        self.numbers = device.empty((2 * rows,), np.uint64)
        self.partial = device.empty((max(PARTIAL_BYTES // 4, each * (geometry.head_dim + 2)),), np.float32)
        self.state = device.empty((2 * each,), np.float32)


class CudaWindow:
    """Where the rows of a window stand, in which caches."""

    def __init__(
        self, device: cuda.Device, window: Window, memory: AttentionMemory, first: int, *, recorded: bool
    ) -> None:
        """`first` is the window's first row among those that are begun together.

        `recorded`: launches for this window are to be like those for others, if they nearly are.
        """
        caches = [_cuda(chunk.sequence.cache) for chunk in window.chunks]
        self._device, self._kv, self._geometry = device, caches[0].kv, caches[0].geometry
        self._memory = memory
        rows = self._rows = window.rows
        # A row's numbers: the address of its cache, then two of half the size.
        numbers = np.empty((2, rows), np.uint64)
        numbers[0] = np.array([cache.address for cache in caches], np.uint64)[window.row_chunk]
        position, blocks = numbers[1:].view(np.int32).reshape(2, rows)
        position[:] = window.row_position
        blocks[:] = np.array([cache.blocks for cache in caches], np.int32)[window.row_chunk]
        on_device = memory.numbers[2 * first : 2 * (first + rows)]
        self._address = on_device[:rows]
        halves = on_device[rows:].view(np.int32)
        self.position = halves[:rows]  # (rows,) i32
        self._capacity = halves[rows:]  # (rows,) i32, in blocks
        device.upload(numbers.reshape(-1), on_device)
        self._few = recorded
        needed = int(window.row_position.max()) // BLOCK + 1
        self.blocks = _rounded(needed) if recorded else needed
        """That attention walks: as many as the longest row needs, or some more, which are found empty."""

    def store(self, layer: int, key: cuda.Array, value: cuda.Array) -> None:
        """Write the rows' keys and values (rows, kv_heads, head_dim) to their caches."""
        geometry = self._geometry
        values = self._rows * geometry.kv_heads * geometry.head_dim
        self._device.launch(
            f"store_{self._kv}",
            blocks_of(values, THREADS),
            THREADS,
            *self._caches(layer),
            self.position,
            key,
            value,
            np.int32(values),
        )

    def attend(self, layer: int, query: cuda.Array, out: cuda.Array) -> None:
        """query (rows, heads, head_dim), out (rows, heads * head_dim): a row attends to positions up to its own.

        Blocks are computed side by side, as many as there is memory for, and merged in ascending order.
        """
        heads, dim = self._geometry.heads, self._geometry.head_dim
        scale = np.float32(1) / np.sqrt(np.float32(dim))
        threads = 2 * BLOCK if self._few and dim > BLOCK else BLOCK  # of many rows, there are blocks enough
        together = min(self.blocks, max(1, self._memory.partial.shape[0] // (self._rows * heads * (dim + 2))))
        for first in range(0, self.blocks, together):
            count = min(together, self.blocks - first)
            self._device.launch(
                f"attend_{self._kv}",
                (count, heads, self._rows),
                threads,
                query,
                *self._caches(layer),
                self.position,
                scale,
                np.int32(first),
                self._memory.partial,
            )
            self._device.launch(
                "merge_blocks",
                (heads, self._rows, 1),
                threads,
                self._memory.partial,
                self.position,
                np.int32(dim),
                np.int32(first),
                np.int32(count),
                np.int32(first + count == self.blocks),
                self._memory.state,
                out,
            )

    def _caches(self, layer: int) -> tuple[cuda.Array, cuda.Array, np.int32, np.int32, np.int32, np.int32]:
        geometry = self._geometry
        numbers = (layer, geometry.layers, geometry.kv_heads, geometry.head_dim)
        one, two, three, four = map(np.int32, numbers)
        return self._address, self._capacity, one, two, three, four


def _rounded(blocks: int) -> int:
    """A power of 4, so that launches for longer and longer sequences are seldom others."""
    rounded = 1
    while rounded < blocks:
        rounded *= 4
    return rounded


def _cuda(cache: Cache) -> CudaCache:
    """The cache as the kernels take it: `new_cache` makes no others."""
    assert isinstance(cache, CudaCache)
    return cache
