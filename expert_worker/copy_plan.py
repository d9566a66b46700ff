"""Which experts get a copy in RAM: pure, from one reading of the memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protocol.errors import RoomError
from protocol.gib import GIB
from protocol.messages import I32, U8
from protocol.ranking import by_rank

MARGIN = 256 << 20
"""Bytes left free when a copy is made as large as the room, since the next reading of it may be a bit lower."""
MARGIN_SHARE = 16
"""Of a room smaller than sixteen margins this part: in a small container a whole one would leave nothing."""

Budget = int | Literal["auto"] | None
"""Bytes at most; "auto" for what fits; None for all or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CopyPlan:
    """Who gets one. No expert at all is no error if so little was asked for."""

    copied: NDArray[np.bool_]
    """(layers, experts)."""
    bytes: int
    """Of all copies."""
    note: str
    """What was decided and why, one sentence or two without a full stop at the end, for logs."""


def plan_copies(
    sizes: Sequence[int],
    wanted: U8,
    rank: I32 | None,
    budget: Budget,
    *,
    available: int,
    headroom: int,
) -> CopyPlan:
    """Plan copies of the `wanted` (layers, experts) experts of a model, each of which takes `sizes[layer]` bytes.

    The room is `available`, one reading, less `headroom`. Without a budget all are copied, or RoomError says why not.
    With one they are copied as they come, hottest first: by `rank` (layers, experts; 0 is the hottest, each
    number once), or if that is None expert by expert across the layers; one that does not fit is left out, and smaller
    ones after it are not. RoomError too if the budget is "auto" and not one of them fits.

    ValueError for shapes that do not match, nothing to choose from, or an expert of no bytes.
    """
    _check(sizes, wanted, rank)
    total = sum(size * int(count) for size, count in zip(sizes, np.count_nonzero(wanted, axis=1), strict=True))
    room = max(0, available - headroom)
    free = f"{_size(available)} are available, of which {_size(headroom)} are to stay free"
    if budget is None:
        if total > room:
            raise RoomError(f"copies of all experts take {_size(total)}, but {free}: {_size(room)} are left for them")
        return _plan(sizes, wanted, by_rank(wanted, None), room, "")
    limit, clamping = limited(budget, available, headroom)
    plan = _plan(sizes, wanted, by_rank(wanted, rank), limit, clamping)
    if budget == "auto" and wanted.any() and not plan.copied.any():
        least = min(sizes[layer] for layer in np.flatnonzero(wanted.any(axis=1)).tolist())
        raise RoomError(
            f"not one expert can be copied: the smallest takes {_size(least)}, but {free}, "
            f"and {_size(_margin(room))} more"
        )
    return plan


def limited(budget: int | Literal["auto"], available: int, headroom: int) -> tuple[int, str]:
    """The bytes that a copy may take, and why they are fewer than the budget, if so.

    A budget that exceeds the room is lowered to the room less a margin; one that just fills it is not.
    """
    room = max(0, available - headroom)
    if budget != "auto" and budget <= room:
        return budget, ""
    limit = room - _margin(room)
    asked = "what fits was asked for" if budget == "auto" else f"{_size(budget)} were asked for"
    return limit, (
        f"{asked}, {_size(available)} are available, {_size(headroom)} are to stay free, and "
        f"{_size(_margin(room))} as a margin: {_size(limit)} at most"
    )


def _margin(room: int) -> int:
    return min(MARGIN, room // MARGIN_SHARE)


def _check(sizes: Sequence[int], wanted: U8, rank: I32 | None) -> None:
    if wanted.ndim != 2 or not wanted.size or len(sizes) != len(wanted):
        raise ValueError(f"wanted must be ({len(sizes)}, experts), with both above 0, found {wanted.shape}")
    if rank is not None and rank.shape != wanted.shape:
        raise ValueError(f"rank must be {wanted.shape} as wanted is, found {rank.shape}")
    for layer in np.flatnonzero(wanted.any(axis=1)).tolist():
        if sizes[layer] <= 0:
            raise ValueError(f"an expert of layer {layer} must have at least one byte, found {sizes[layer]}")


def _plan(sizes: Sequence[int], wanted: U8, order: Iterable[tuple[int, int]], limit: int, clamping: str) -> CopyPlan:
    """One after the other, as far as `limit` bytes go."""
    copied = np.zeros(wanted.shape, np.bool_)
    taken = 0
    for layer, expert in order:
        if sizes[layer] <= limit - taken:
            copied[layer, expert] = True
            taken += sizes[layer]
    told = f"copies of {np.count_nonzero(copied)} of {np.count_nonzero(wanted)} experts, {_size(taken)}"
    note = f"{clamping}; {told}" if clamping else told
    return CopyPlan(copied=copied, bytes=taken, note=note)


def _size(count: int) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB // 10 else f"{count} bytes"
