"""Who has the weights of what, as a table for those who deal experts out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from protocol.messages import U8


class _Holder(Protocol):
    """What is used of coordinator.placement.Holder."""

    @property
    def able(self) -> U8 | None: ...


def able_of(holders: Sequence[_Holder], layers: Sequence[int], experts: int) -> U8:
    """(layers, experts, holders): 1 where a holder has the weights, of these layers; room is another question."""
    table = np.ones((len(layers), experts, len(holders)), np.uint8)
    for column, holder in enumerate(holders):
        if holder.able is not None:
            table[:, :, column] = holder.able[layers]
    return table
