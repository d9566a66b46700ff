"""Keys and values in a device's memory, and attention of a window over them."""

from __future__ import annotations

import numpy as np

from coordinator.window import Window
from native import cuda
from native.cuda.device import blocks_of, uploaded
from protocol.geometry import Geometry

BLOCK = 64
"""Positions that attention sums apart before it merges them."""
PARTIAL_BYTES = 64 << 20
"""Of blocks that are attended to at once, before they are merged: bounds memory, not the context."""
THREADS = 256


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


class CudaWindow:
    """Where the rows of a window stand, in which caches."""

    def __init__(self, device: cuda.Device, window: Window) -> None:
        caches = [chunk.sequence.cache for chunk in window.chunks]
        assert all(isinstance(cache, CudaCache) for cache in caches)  # `new_cache` makes no others
        first = caches[0]
        assert isinstance(first, CudaCache)
        self._device, self._kv, self._geometry = device, first.kv, first.geometry
        self._rows = window.rows
        self._blocks = int(window.row_position.max()) // BLOCK + 1
        address = np.array([cache.address for cache in caches if isinstance(cache, CudaCache)], np.uint64)
        blocks = np.array([cache.blocks for cache in caches if isinstance(cache, CudaCache)], np.int32)
        self._address = uploaded(device, address[window.row_chunk])
        numbers = uploaded(device, np.stack([window.row_position, blocks[window.row_chunk]]))
        self.position = numbers[:1].reshape(-1)  # (rows,) i32
        self._capacity = numbers[1:].reshape(-1)  # (rows,) i32, in blocks

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

        Blocks are computed side by side, as many as PARTIAL_BYTES hold, and merged in ascending order.
        """
        heads, dim = self._geometry.heads, self._geometry.head_dim
        scale = np.float32(1) / np.sqrt(np.float32(dim))
        together = min(self._blocks, max(1, PARTIAL_BYTES // (self._rows * heads * (dim + 2) * 4)))
        partial = self._device.empty((self._rows * heads * together * (dim + 2),), np.float32)
        state = self._device.empty((self._rows * heads * 2,), np.float32)
        for first in range(0, self._blocks, together):
            count = min(together, self._blocks - first)
            self._device.launch(
                f"attend_{self._kv}",
                (count, heads, self._rows),
                BLOCK,
                query,
                *self._caches(layer),
                self.position,
                scale,
                np.int32(first),
                partial,
            )
            self._device.launch(
                "merge_blocks",
                (heads, self._rows, 1),
                BLOCK,
                partial,
                self.position,
                np.int32(dim),
                np.int32(first),
                np.int32(count),
                np.int32(first + count == self._blocks),
                state,
                out,
            )

    def _caches(self, layer: int) -> tuple[cuda.Array, cuda.Array, np.int32, np.int32, np.int32, np.int32]:
        geometry = self._geometry
        numbers = (layer, geometry.layers, geometry.kv_heads, geometry.head_dim)
        one, two, three, four = map(np.int32, numbers)
        return self._address, self._capacity, one, two, three, four
