"""Rows as a model might route them, to try placements on: drawn from how often each expert is used."""

from __future__ import annotations

import numpy as np

from coordinator.profile import F64
from protocol.messages import I32

UNSEEN = 0.5
"""What an expert's uses are taken for beside those that were counted: one that was never used may be."""


def sampled_rows(uses: F64, chosen: int, rows: int, seed: int = 0) -> I32:
    """(layers, rows, chosen): distinct experts of each row, drawn in proportion to `uses` (layers, experts).

    Layers are independent of each other, and so are the experts of a row but for being distinct. The same seed gives
    the same rows. ValueError if a row cannot have so many experts.
    """
    layers, experts = uses.shape
    if not 1 <= chosen <= experts:
        raise ValueError(f"{chosen} experts for a row, 1 to {experts} expected")
    # Who has the largest of log(weight) + Gumbel noise are drawn in proportion, without replacement.
    noise = np.random.default_rng(seed).gumbel(size=(layers, rows, experts))
    keys = np.log(uses + UNSEEN)[:, None, :] + noise
    drawn = np.argpartition(-keys, chosen - 1, axis=2)[:, :, :chosen]
    return np.sort(drawn, axis=2).astype(np.int32)


def expected_use(uses: F64, chosen: int) -> F64:
    """(layers, experts): how many entries of one row each expert gets on average; at most 1, `chosen` in each layer."""
    weight = (uses + UNSEEN) / (uses + UNSEEN).sum(axis=1, keepdims=True)
    share: F64 = np.minimum(weight * chosen, 1.0)
    for _ in range(8):  # what an expert cannot get twice goes to the others
        free = share < 1.0
        left = chosen - share.sum(axis=1, keepdims=True, where=~free, initial=0.0)
        room = weight.sum(axis=1, keepdims=True, where=free, initial=0.0)
        share = np.where(free & (room > 0), np.minimum(weight * left / np.where(room > 0, room, 1.0), 1.0), share)
    return share
