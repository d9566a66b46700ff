"""A NumPy twin of `native.pack_rows`: the layout of docs/packs.md, said another way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.pack import GROUP_ROWS
from protocol.quant_types import TensorType

Bytes = NDArray[np.uint8]


def packed(kind: TensorType, rows: int, columns: int, source: Bytes) -> Bytes:
    """A whole matrix, packed."""
    blocks = source.reshape(rows, columns // kind.block_columns, kind.block_bytes)
    whole = rows // GROUP_ROWS * GROUP_ROWS
    groups = [
        _interleaved(kind, blocks[start : start + GROUP_ROWS, block])
        for start in range(0, whole, GROUP_ROWS)
        for block in range(blocks.shape[1])
    ]
    return np.concatenate([*groups, blocks[whole:].ravel()])


def _interleaved(kind: TensorType, blocks: Bytes) -> Bytes:
    """The block (GROUP_ROWS, bytes) of a group: each piece of the first row, then of the second, and so on."""
    return np.concatenate([piece.ravel() for piece in _pieces(kind, blocks)])


def _pieces(kind: TensorType, blocks: Bytes) -> Iterator[Bytes]:
    """(rows, n) each."""
    match kind:
        case TensorType.Q8_0:
            yield blocks[:, :2]
            yield from _dwords(blocks[:, 2:])
        case TensorType.Q4_0 | TensorType.Q4_1 | TensorType.Q5_0 | TensorType.Q5_1:
            yield from _numbers(blocks[:, : 4 if kind in (TensorType.Q4_1, TensorType.Q5_1) else 2])
            if kind in (TensorType.Q5_0, TensorType.Q5_1):
                bits = np.unpackbits(blocks[:, -20:-16], axis=1, bitorder="little")
                yield _high(bits, 1)
            yield from _dwords(blocks[:, -16:])
        case TensorType.Q4_K | TensorType.Q5_K:
            yield from _numbers(blocks[:, :4])
            yield from _dwords(blocks[:, 4:16])
            low = _paired(blocks[:, -128:], 32)
            for sub in range(8):
                if kind == TensorType.Q5_K:
                    yield _high(blocks[:, 16:48] >> sub & 1, 1)
                yield from _dwords(_nibbles(low[:, sub]))
        case TensorType.Q6_K:
            yield blocks[:, 208:]
            yield from _numbers(blocks[:, 192:208])
            low = _paired(blocks[:, :128], 64)
            for sub in range(8):
                half, quarter = divmod(sub, 4)
                high = blocks[:, 128 + 32 * half : 160 + 32 * half] >> 2 * quarter & 3
                yield _high(high[:, :16], 2)
                yield _high(high[:, 16:], 2)
                yield from _dwords(_nibbles(low[:, sub]))
        case _:
            raise ValueError(f"{kind.name} is not packed")


def _numbers(heads: Bytes) -> Iterator[Bytes]:
    """Two bytes of each row at a time."""
    return (heads[:, at : at + 2] for at in range(0, heads.shape[1], 2))


def _dwords(codes: Bytes) -> Iterator[Bytes]:
    """Four bytes of each row at a time."""
    return (codes[:, at : at + 4] for at in range(0, codes.shape[1], 4))


def _paired(codes: Bytes, together: int) -> Bytes:
    """(rows, 8, 32): low bits of sub-blocks; `together` bytes hold some in low halves, the next in high."""
    parts = codes.reshape(len(codes), -1, 1, together)
    both = np.concatenate([parts & 15, parts >> 4], axis=2)
    return both.reshape(len(codes), 8, 32)


def _nibbles(columns: Bytes) -> Bytes:
    """(rows, 16): column i low, column 16 + i high."""
    codes: Bytes = columns[:, :16] | columns[:, 16:] << np.uint8(4)
    return codes


def _high(columns: NDArray[np.integer[Any]], bits: int) -> Bytes:
    """(rows, 4): `bits` bits of column 4q + b are the q-th of byte b."""
    places = columns.reshape(len(columns), -1, 4) << (bits * np.arange(columns.shape[1] // 4))[:, None]
    combined: Bytes = np.bitwise_or.reduce(places, axis=1).astype(np.uint8)
    return combined
