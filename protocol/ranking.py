"""The order in which experts are given memory of which there is too little, whoever gives it. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protocol.messages import I32, U8


def by_rank(chosen: U8 | NDArray[np.bool_], rank: I32 | None) -> list[tuple[int, int]]:
    """Where `chosen` (layers, experts) is not 0, as (layer, expert): the lowest `rank` (layers, experts) first.

    Nobody has to know how much experts are used: without a rank it is the first expert of every layer, then the second,
    and so on, so that each layer gets its share.
    """
    if rank is None:
        experts, layers = np.nonzero(chosen.T)
    else:
        layers, experts = np.nonzero(chosen)
        order = np.argsort(rank[layers, experts], kind="stable")
        layers, experts = layers[order], experts[order]
    return list(zip(layers.tolist(), experts.tolist(), strict=True))
