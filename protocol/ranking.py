"""The order in which experts are given memory of which there is too little, whoever gives it. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocol.messages import I32, I64, U8


def in_order(chosen: U8 | NDArray[np.bool_], rank: I32 | None) -> I64:
    """Where `chosen` (layers, experts) is not 0, as rows (layer, expert): the lowest `rank` (layers, experts) first.

    Nobody has to know how much experts are used: without a rank it is the first expert of every layer, then the second,
    and so on, so that each layer gets its share.
    """
    if rank is None:
        return np.argwhere(chosen.T)[:, ::-1].copy()
    cells = np.argwhere(chosen)
    return cells[np.argsort(rank[cells[:, 0], cells[:, 1]], kind="stable")]


def by_rank(chosen: U8 | NDArray[np.bool_], rank: I32 | None) -> list[tuple[int, int]]:
    """The same as pairs (layer, expert)."""
    layers, experts = in_order(chosen, rank).T
    return list(zip(layers.tolist(), experts.tolist(), strict=True))
