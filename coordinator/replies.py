"""Is an answer the one that was asked for, and if so: add it to the sums. Anything else leaves them untouched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

import native
from protocol.errors import ProtocolError
from protocol.messages import I32, I64, Sums

ENTRY_LIMIT = 1 << 58
"""An entry's magnitude on the fixed-point grid is below this: 2**22 on a grid of 2**-36."""

_NO_ROWS = np.empty(0, np.int32)
_NO_LIMITS = np.empty((0, 1), np.int64)


@lru_cache
def _limit_of(entries: int) -> I64:
    """(1, 1): what one row with so many entries cannot reach."""
    return np.array([[entries * ENTRY_LIMIT]], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """What a good answer to one call consists of."""

    single_row: I32
    """The window's rows with one entry, ascending: they come as fp32."""
    sum_row: I32
    """Those with more: they come as sums."""
    sum_limit: I64
    """(sum rows, 1): magnitude that so many entries cannot reach."""

    @classmethod
    def of(cls, rows: I32, index: I32) -> Expected:
        """From the distinct rows of a part and each entry's index into them (`Part.distinct_rows`)."""
        if len(rows) == 1:
            if len(index) == 1:
                return cls(single_row=rows, sum_row=_NO_ROWS, sum_limit=_NO_LIMITS)
            return cls(single_row=_NO_ROWS, sum_row=rows, sum_limit=_limit_of(len(index)))
        entries = np.bincount(index, minlength=len(rows)).astype(np.int64)
        several = entries > 1
        return cls(
            single_row=rows[~several],
            sum_row=rows[several],
            sum_limit=entries[several, np.newaxis] * np.int64(ENTRY_LIMIT),
        )


def add_reply(reply: Sums, expected: Expected, sums: I64) -> None:
    """Add a worker's answer to `sums` (rows, width); ProtocolError, and nothing added, if it is not what was asked.

    Its rows must be exactly those expected, in the form expected, its values finite and in range. Whether its entries
    were still uncovered is for Coverage to say.
    """
    _check_rows("single", reply.single_row, expected.single_row)
    _check_rows("sum", reply.sum_row, expected.sum_row)
    width = sums.shape[1]
    if len(reply.sum_row):
        wide = _sums(reply, expected, width)
    if len(reply.single_row):
        _check_columns("single", reply.single.shape[1], width)
        try:
            native.add_weighted(sums, reply.single_row, reply.single)
        except native.EntryRangeError as error:
            raise ProtocolError(f"a weighted row is not finite or too large: {error.args[0]}") from error
    if len(reply.sum_row):
        native.add_sums(sums, reply.sum_row, wide)


def _sums(reply: Sums, expected: Expected, width: int) -> I64:
    """(sum rows, width), checked: 48 bits cannot hold too large a sum, 64 can."""
    if len(reply.sum48):
        _check_columns("sum48", reply.sum48.shape[1], width)
        return native.unpack48(reply.sum48)
    wide = reply.sum64
    _check_columns("sum64", wide.shape[1], width)
    if (wide >= expected.sum_limit).any() or (wide <= -expected.sum_limit).any():
        raise ProtocolError("a sum is larger than its entries can make it")
    return wide


def _check_columns(form: str, found: int, expected: int) -> None:
    if found != expected:
        raise ProtocolError(f"{form} has {found} columns, {expected} expected")


def _check_rows(form: str, found: I32, expected: I32) -> None:
    if found.tobytes() != expected.tobytes():
        raise ProtocolError(f"rows {found[:8].tolist()} come as {form}, {expected[:8].tolist()} expected")
