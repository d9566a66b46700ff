"""Who computes which expert of one layer: values in, values out; no socket.

An *entry* is one (row, expert) pair of the window. Its holder is decided once, from this layer's ids and one placement;
whatever is decided later about the same entries is a new attempt. The plan puts a layer's entries in one order, by
holder, expert and row, and an entry's place in it is its bit in the coverage bitmap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

import native
from protocol.errors import RequestError
from protocol.messages import F32, I32, I64, MAX_ENTRIES_PER_ROW, MAX_ROWS

LOCAL = -1
"""The holder that is always there: the coordinator's own expert bank."""
DEVICE = -2
"""The coordinator's own slots, in the memory of its device."""
NOBODY_ELSE: I64 = np.empty(0, np.int64)
"""No second copies of a layer's experts."""
NO_RUNNERS: I64 = np.empty((0, 4), np.int64)
"""Every expert is computed by its owner."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One holder's share of one layer, entries ascending by (expert, row)."""

    holder: int
    """What the owner table says: a member's serial number, LOCAL or DEVICE."""
    attempt: int
    """0 for the first plan, one more for each time these entries were planned again."""
    bits: int
    """The entries' places in the layer's plan, as a bitmap."""
    expert: I32
    """(entries,): ascending."""
    row: I32
    """(entries,): the window's row, ascending among entries of one expert."""
    weight: F32
    """(entries,): router weight."""

    def __len__(self) -> int:
        """How many entries it has."""
        return len(self.expert)

    def again(
        self, owner: I64, attempts: Iterator[int], also: I64 = NOBODY_ELSE, runners: I64 = NO_RUNNERS
    ) -> list[Part]:
        """The same entries by who has their experts now, as of `plan_layer`; each part takes the next of `attempts`."""
        places = _places_of(self.bits)
        anew = native.plan_entries(Part, self.expert[:, None], self.weight[:, None], owner, also, runners)
        return [
            replace(one, attempt=next(attempts), bits=_bitmap_of(places[one.row]), row=self.row[one.row])
            for one in anew  # whose rows are entries of this part
        ]

    def distinct_rows(self, rows: int) -> tuple[I32, I32]:
        """The rows this part needs of a window of `rows`, ascending, and each entry's index into them."""
        if rows == 1:  # most windows: one token of one conversation
            return self.row[:1], self.row
        return native.distinct_rows(self.row, rows)


class Coverage:
    """Which entries of a layer have been added to its sums: each exactly once."""

    __slots__ = ("_missing",)

    def __init__(self, entries: int) -> None:
        self._missing = (1 << entries) - 1

    @property
    def missing(self) -> int:
        """How many entries nobody has delivered yet."""
        return self._missing.bit_count()

    def lacks(self, part: Part) -> bool:
        """Whether none of the part's entries has been delivered yet."""
        return self._missing & part.bits == part.bits

    def accept(self, part: Part) -> bool:
        """Mark the part's entries as covered; False, and nothing marked, if one of them was already."""
        if not self.lacks(part):
            return False
        self._missing ^= part.bits
        return True


def plan_layer(
    layer: int, ids: I32, weights: F32, owner: I64, also: I64 = NOBODY_ELSE, runners: I64 = NO_RUNNERS
) -> list[Part]:
    """Split a layer's routed entries by holder, ascending; so those that stay in this process come first.

    ids and weights are (rows, k); `owner` and `also` (experts,), int64, name who has each expert in this layer, and
    `runners` how fast these are and who is of their teams, as Placement has them. What more than one has is shared out:
    the most expensive expert first, to whoever would be done with it first (the LPT rule of R. L. Graham, 1969), its
    owner if that makes no difference. RequestError, naming layer and row, for ids out of range, an expert twice in one
    row, or a weight that is not finite.
    """
    _check_shape(layer, ids, weights)
    try:
        return native.plan_entries(Part, ids, weights, owner, also, runners)
    except ValueError as error:  # names the row
        raise RequestError(f"layer {layer}, {error}") from None


def _places_of(bits: int) -> I64:
    """Numbers of the bits that are set, ascending."""
    flags = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(flags, bitorder="little")).astype(np.int64)


def _bitmap_of(places: I64) -> int:
    """The number in which these bits are set."""
    flags = np.zeros(int(places[-1]) + 1, np.uint8)
    flags[places] = 1
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def _check_shape(layer: int, ids: I32, weights: F32) -> None:
    if ids.ndim != 2 or ids.shape != weights.shape or ids.size == 0:
        raise RequestError(f"layer {layer}: ids {ids.shape} and weights {weights.shape}, one same (rows, k) expected")
    rows, k = ids.shape
    if rows > MAX_ROWS or k > MAX_ENTRIES_PER_ROW:
        raise RequestError(
            f"layer {layer}: {rows} rows of {k} experts, {MAX_ROWS} of {MAX_ENTRIES_PER_ROW} at most expected"
        )
