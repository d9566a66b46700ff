"""Which rows of which sequences make the next window. Pure: values in, values out.

Every sequence that has something to compute gets one row, which is all that a running conversation can use; prompts
then share what is left of the window evenly, so that a short prompt does not wait behind a long one. If there are more
sequences than rows, those that waited longest come first. Each window serves as many sequences as it has rows and puts
them behind all others, so nobody waits for ever, however many arrive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What one sequence has to compute next."""

    key: int
    """Names the sequence; of two that waited equally long, the lower key comes first."""
    rows: int
    """Ids that are known and not computed: one for a running conversation, more for a prompt."""
    last_step: int
    """The step that served it last; for a new one, the last step before it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of a window that one sequence gets."""

    key: int
    rows: int


def next_window(pending: Iterable[Pending], limit: int) -> list[Share]:
    """At most `limit` rows of the pending sequences: single rows first, then chunks of prompts; none empty."""
    if limit < 1:
        raise ValueError(f"a window needs room for one row at least, found {limit=}")
    waiting = sorted((one for one in pending if one.rows > 0), key=lambda one: (one.last_step, one.key))
    served = waiting[:limit]
    chunks = _even(limit - len(served), [one.rows - 1 for one in served])
    shares = [Share(key=one.key, rows=1 + extra) for one, extra in zip(served, chunks, strict=True)]
    return sorted(shares, key=lambda share: share.rows > 1)


def _even(spare: int, wanted: list[int]) -> list[int]:
    """Divide `spare` so that nobody gets more than wanted and nobody gets less than another who also wants more.

    What cannot be divided goes to the first of those who want most.
    """
    given = [0] * len(wanted)
    modest_first = sorted(range(len(wanted)), key=lambda index: (wanted[index], -index))
    for left, index in zip(range(len(wanted), 0, -1), modest_first, strict=True):
        given[index] = min(wanted[index], spare // left)
        spare -= given[index]
    return given
