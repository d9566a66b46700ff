"""Which experts get a copy in RAM, and where in it: pure, from one reading of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protocol.errors import RoomError
from protocol.messages import I32, I64, U8

NOT_COPIED = -1
"""The offset of an expert that stays where it is."""

SLOT_ALIGNMENT = 4096
"""Where a copy may begin, in bytes: at a page, so that it can be read directly, locked, and given back alone."""

MARGIN = 256 << 20
"""Bytes left free when a copy is made as large as the room, since the next reading of it may be a bit lower."""

_GIB = 1 << 30

Budget = int | Literal["auto"] | None
"""Bytes at most; "auto" for what fits; None for all or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CopyPlan:
    """Where each expert's copy begins."""

    offsets: I64
    """(layers, experts), in bytes from the start of the copy, or NOT_COPIED."""
    bytes: int
    """Of the whole copy."""
    note: str
    """What was decided and why, one sentence or two without a full stop at the end, for logs."""

    @property
    def copied(self) -> int:
        """How many experts have a copy; 0 is an empty plan, which is no error if so little was asked for."""
        return int(np.count_nonzero(self.offsets != NOT_COPIED))


def plan_copies(
    sizes: Sequence[int],
    wanted: U8,
    rank: I32 | None,
    budget: Budget,
    *,
    available: int,
    headroom: int,
    alignment: int = SLOT_ALIGNMENT,
) -> CopyPlan:
    """Plan the copies of the `wanted` (layers, experts) experts of a model, each of `sizes[layer]` bytes.

    The room is `available`, one reading, less `headroom`. Without a budget there is a place for all, layer by layer, or
    RoomError. With one they get places as they come, hottest first: by `rank` (layers, experts; 0 is the hottest, each
    number once), or if that is None expert by expert across the layers; one that does not fit is left out, and smaller
    ones after it are not. RoomError too if the budget is "auto" and not one of them fits.

    ValueError for shapes that do not match, nothing to choose from, or an expert of no bytes.
    """
    slots = _slots(sizes, wanted, rank, alignment)
    total = sum(slot * int(count) for slot, count in zip(slots, np.count_nonzero(wanted, axis=1), strict=True))
    room = max(0, available - headroom)
    free = f"{_size(available)} are available, of which {_size(headroom)} are to stay free"
    if budget is None:
        if total > room:
            raise RoomError(f"copies of all experts take {_size(total)}, but {free}: {_size(room)} are left for them")
        return _placed(slots, wanted, np.flatnonzero(wanted), room, "")
    limit, clamping = limited(budget, available, headroom)
    plan = _placed(slots, wanted, _hottest_first(wanted, rank), limit, clamping)
    if budget == "auto" and wanted.any() and not plan.copied:
        least = min(slots[layer] for layer in np.flatnonzero(wanted.any(axis=1)))
        raise RoomError(
            f"not one expert can be copied: the smallest takes {_size(least)}, but {free}, and {_size(MARGIN)} more"
        )
    return plan


def limited(budget: int | Literal["auto"], available: int, headroom: int) -> tuple[int, str]:
    """The bytes that a copy may take, and why they are fewer than the budget, if so.

    A budget that exceeds the room is lowered to the room less MARGIN; one that just fills it is not.
    """
    room = max(0, available - headroom)
    if budget != "auto" and budget <= room:
        return budget, ""
    limit = max(0, room - MARGIN)
    asked = "what fits was asked for" if budget == "auto" else f"{_size(budget)} were asked for"
    return limit, (
        f"{asked}, {_size(available)} are available, {_size(headroom)} are to stay free, and {_size(MARGIN)} as a "
        f"margin: {_size(limit)} at most"
    )


def _slots(sizes: Sequence[int], wanted: U8, rank: I32 | None, alignment: int) -> list[int]:
    """What an expert's copy takes, by layer."""
    if wanted.ndim != 2 or not wanted.size or len(sizes) != len(wanted):
        raise ValueError(f"wanted must be ({len(sizes)}, experts), with both above 0, found {wanted.shape}")
    if rank is not None and rank.shape != wanted.shape:
        raise ValueError(f"rank must be {wanted.shape} as wanted is, found {rank.shape}")
    if not all(size > 0 for size in sizes):
        raise ValueError(f"an expert must have at least one byte, found {min(sizes)}")
    return [size + -size % alignment for size in sizes]


def _hottest_first(wanted: U8, rank: I32 | None) -> NDArray[np.int64]:
    """Flat indices of the wanted experts."""
    if rank is None:  # across the layers, since each of them is used by every token
        rank = np.arange(wanted.size, dtype=np.int32).reshape(wanted.shape[::-1]).T
    pairs = np.flatnonzero(wanted)
    return pairs[np.argsort(rank.ravel()[pairs], kind="stable")]


def _placed(slots: list[int], wanted: U8, order: NDArray[np.int64], limit: int, clamping: str) -> CopyPlan:
    """One after the other, as far as `limit` bytes go."""
    offsets = np.full(wanted.size, NOT_COPIED, np.int64)
    end = 0
    for pair in order.tolist():
        slot = slots[pair // wanted.shape[1]]
        if slot <= limit - end:
            offsets[pair] = end
            end += slot
    copied, all_of_them = int(np.count_nonzero(offsets != NOT_COPIED)), int(np.count_nonzero(wanted))
    told = f"copies of {copied} of {all_of_them} experts, {_size(end)}"
    return CopyPlan(offsets=offsets.reshape(wanted.shape), bytes=end, note=f"{clamping}; {told}" if clamping else told)


def _size(count: int) -> str:
    return f"{count / _GIB:.2f} GiB" if count >= _GIB // 10 else f"{count} bytes"
