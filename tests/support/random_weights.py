"""Random GGUF rows of every type that has a kernel, extreme scales and codes included."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import native
from protocol.quant_types import RUNNABLE

BLOCKS = {int(kind): (kind.block_columns, kind.block_bytes) for kind in RUNNABLE}
"""ggml type: (columns, bytes) of a block."""

HALF_AT = {2: (0,), 3: (0, 2), 6: (0,), 7: (0, 2), 8: (0,), 12: (0, 2), 13: (0, 2), 14: (208,)}
"""Where a block of each quantised type keeps its fp16 scales and minimums."""


def random_rows(
    rng: np.random.Generator, type_id: int, rows: int, columns: int, size: float = 0.01
) -> NDArray[np.uint8]:
    """Bytes of `rows` rows; every code pattern is possible, fp16 scales are normal with standard deviation `size`."""
    block_columns, block_bytes = BLOCKS[type_id]
    count = rows * columns // block_columns
    if type_id == 0:
        return rng.standard_normal(count).astype(np.float32).view(np.uint8)
    if type_id == 1:
        return rng.standard_normal(count).astype(np.float16).view(np.uint8)
    if type_id == 30:
        return (rng.standard_normal(count).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    blocks = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    for at in HALF_AT[type_id]:
        blocks[:, at : at + 2] = rng.normal(0, size, (count, 1)).astype(np.float16).view(np.uint8)
    return blocks.reshape(-1)


def stored(
    data: NDArray[np.uint8], type_id: int, matrices: int, rows: int, columns: int, *, packed: bool, behind: bytes = b""
) -> native.Weights:
    """Weights in the file's own rows or, of types that can be, packed; in memory, `behind` lies behind them."""
    packed = packed and type_id in HALF_AT
    end = np.frombuffer(behind, np.uint8)
    around = np.concatenate([data, end])
    if packed:
        for source, out in zip(data.reshape(matrices, -1), around[: data.size].reshape(matrices, -1), strict=True):
            native.pack_rows(type_id, rows, columns, source, out)
    return native.Weights(around[: data.size], type_id, matrices, rows, columns, packed=packed)
