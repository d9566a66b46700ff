"""Are a holder's bits ours? Experts are pure functions and sums are exact, so any answer can be computed here again.

Pure, but for the bank that computes.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import native
from expert_worker.bank import ExpertBank
from protocol.layout import ExpertLayout
from protocol.messages import F32, I32, I64

MAX_NAMED = 8
"""Experts that are named when it cannot be told which one of them is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Rows of one layer that came out otherwise elsewhere."""

    layer: int
    experts: tuple[int, ...]
    """One of them at least is to blame."""
    ours: str
    """Digest of these rows' sums as computed here, 16 hex digits of their sha256."""
    theirs: str

    def in_words(self) -> str:
        """What differs, with both digests."""
        named = ", ".join(map(str, self.experts[:MAX_NAMED])) + (", ..." if len(self.experts) > MAX_NAMED else "")
        who = f"expert {named}" if len(self.experts) == 1 else f"one of experts {named}"
        return f"its bits differ: layer {self.layer}, {who}: digest {self.theirs} found, {self.ours} expected"


def difference(layer: int, expert: I32, row: I32, ours: I64, theirs: I64) -> Difference | None:
    """Compare sums (rows, width) of entries `expert` and `row` (entries,), bit by bit; None if they are equal."""
    differs = (ours != theirs).any(axis=1)
    if not differs.any():
        return None
    bad = np.flatnonzero(differs)
    return Difference(
        layer=layer, experts=_suspects(expert, row, differs), ours=_digest(ours[bad]), theirs=_digest(theirs[bad])
    )


def _suspects(expert: I32, row: I32, differs: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[int, ...]:
    """What all rows that differ have in common, else all of them, less experts of rows that came out right, if any."""
    of_row: dict[int, set[int]] = {}
    for one, at in zip(expert.tolist(), row.tolist(), strict=True):
        of_row.setdefault(at, set()).add(one)
    bad = [experts for at, experts in of_row.items() if differs[at]]
    good = set().union(*(experts for at, experts in of_row.items() if not differs[at]))
    if not bad:
        return ()  # rows without entries: nobody's
    common = set.intersection(*bad)
    left = [common] if common else bad
    return tuple(sorted(set().union(*(experts - good or experts for experts in left))))


def _digest(sums: I64) -> str:
    return hashlib.sha256(sums.astype("<i8").tobytes()).hexdigest()[:16]


class Auditor:
    """Computes here what somebody else was asked for, for a share of the answers."""

    def __init__(
        self,
        bank: ExpertBank,
        layout: ExpertLayout,
        rate: float = 0.0,
        chance: Callable[[], float] | None = None,
    ) -> None:
        """`rate` is that share, 0 to 1; who is audited cannot know when."""
        self._bank = bank
        self._rate = rate
        self._chance = chance or random.SystemRandom().random
        self._no_singles = np.empty((0, layout.width), np.float32)
        self._width = layout.width

    def due(self) -> bool:
        """Whether this answer is one of them."""
        return self._rate > 0 and self._chance() < self._rate

    def sums(self, layer: int, rows: native.Rows, expert: I32, row: I32, weight: F32) -> I64:
        """What the entries (n,) of `rows` come to, (rows, width). ExpertError if that cannot be computed here."""
        sums = np.zeros((rows.count, self._width), np.int64)
        self._bank.run(layer, rows, expert, row, weight, -1 - row, self._no_singles, sums)
        return sums
