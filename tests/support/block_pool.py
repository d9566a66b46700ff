"""Weights for models of tens of gigabytes: matrices are pieces of one pool of random blocks, each from its own start.

Drawing a block takes some ten times as long as writing it. What is drawn once serves many matrices, no two of which
are alike, since their pieces begin at different places of a pool in which nothing is repeated.
"""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType as Type
from k_quants import U8, random_blocks

BLOCKS = 2**17
"""Of a pool: so many starts there are, and so many matrices may be taken."""
STRIDE = 81_007
"""From one start to the next: odd, so that all starts come before one comes again, and far from the one before."""


class BlockPool:
    """Pools of random K-quant blocks, one for each type and spread of the weights."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._pools: dict[tuple[Type, float], U8] = {}
        self._taken: dict[tuple[Type, float], int] = {}
        self._buffer = np.empty(0, np.uint8)  # fresh memory for each tensor would cost as much as all the rest

    def matrices(self, count: int, blocks: int, kind: Type, std: float) -> U8:
        """(count, blocks, block bytes): so many matrices; the weights have about this standard deviation.

        A matrix larger than the pool is drawn by itself. The next call may overwrite what this one returns. ValueError
        when the pool has no start left.
        """
        if blocks > BLOCKS:
            return np.stack([random_blocks(self._rng, blocks, kind, std) for _ in range(count)])
        key = kind, std
        if key not in self._pools:
            self._pools[key] = random_blocks(self._rng, BLOCKS, kind, std)
        first = self._taken.get(key, 0)
        if first + count > BLOCKS:
            raise ValueError(f"{first + count} matrices of {kind.name} from a pool, {BLOCKS} at most are expected")
        self._taken[key] = first + count
        pool = self._pools[key]
        out = self._room(count * blocks * pool.shape[1]).reshape(count, blocks, -1)
        for number, matrix in enumerate(out, first):
            start = number * STRIDE % BLOCKS
            before_end = min(blocks, BLOCKS - start)
            matrix[:before_end] = pool[start : start + before_end]
            matrix[before_end:] = pool[: blocks - before_end]
        return out

    def _room(self, size: int) -> U8:
        if size > len(self._buffer):
            self._buffer = np.empty(size, np.uint8)
        return self._buffer[:size]
