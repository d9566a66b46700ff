"""Each layer's experts dealt to members so that all are done at the same time, as nearly as it can be done. Pure.

The dealing itself is native code (`native/src/spread.cpp`): the coordinator plans between two steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import native
from coordinator.profile import F64
from protocol.messages import I64, U8

NOBODY = -1


def spread(
    able: U8,
    use: F64,
    entry_s: F64,
    call_s: F64,
    *,
    left: NDArray[np.bool_] | None = None,
    before: I64 | None = None,
    first: I64 | None = None,
) -> I64:
    """(layers, experts): who gets each expert, of those who are `able` (layers, experts, members); NOBODY if none
    is.

    `use` (layers, experts) is how many entries of one row each is expected to get, `entry_s` and `call_s` (members,)
    are as of Pace. Only what is `left` (layers, experts) is dealt out, or else all. Whoever had an expert `before`
    (layers, experts; or NOBODY) keeps it as far as that is its share; the rest goes to whoever would be done first. No
    chain of hand-overs would then have the last one done sooner. Among equals the one who had it before is preferred,
    then the `first` (layers,) one of each layer, or else member 0, then the next one. ValueError for magnitudes beyond
    1e30, and for members that are not there.
    """
    layers, experts, members = able.shape
    nobody = np.full((layers, experts), NOBODY, np.int64)
    if not members:
        return nobody
    left = np.ones((layers, experts), np.bool_) if left is None else left
    return native.spread(
        able=able,
        left=left.view(np.uint8),
        use=use,
        total=np.array([of_layer[some].sum() for of_layer, some in zip(use, left, strict=True)], np.float64),
        entry_s=entry_s,
        call_s=call_s,
        before=nobody if before is None else before,
        first=np.zeros(layers, np.int64) if first is None else first,
    )


def columns_of(owner: I64, serials: I64) -> I64:
    """Of an array of owners: which of `serials` (members,), one at least and each once, each is; NOBODY if none."""
    order = serials.argsort()
    at = order[np.searchsorted(serials, owner, sorter=order).clip(max=len(serials) - 1)]
    return np.where(serials[at] == owner, at, np.int64(NOBODY))


def fair_shares(total: float, entry_s: F64, call_s: F64) -> F64:
    """(members,): `total` entries, so that all who get any are done at the same time, and others would be later.

    ValueError without a member, and for magnitudes beyond 1e30.
    """
    return native.fair_shares(total, entry_s, call_s)
