"""Counting which experts rows are sent to, beside the steps that do it.

A layer costs an item of the engine's list; what a step used is counted together with that of others, and all of it made
to weigh less once in thousands of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coordinator.profile import F64, MAX_ROWS_SEEN, Profile
from protocol.messages import I32

HALF_LIFE_ROWS = 1 << 17
"""Rows after which a use weighs half. A few hours of one conversation: what is asked today counts more than what was
asked last week. And many enough for counts to tell experts apart: one of 128 of which each row uses 8 is used 8,192
times in as many rows if all are used alike, and chance makes about one hundredth of that."""
DECAY_ROWS = HALF_LIFE_ROWS // 16
"""Between two times at which counts are made to weigh less."""
KEPT = 0.5 ** (DECAY_ROWS / HALF_LIFE_ROWS)


TOGETHER_ROWS = 32
"""Counted at one go: what one step of one row would need of NumPy costs as much as that of dozens."""

Routed = tuple[int, I32]
"""A layer, and the experts (rows, used) that rows of a step use of it."""


class Recorder:
    """Goes on with a profile. Used by one thread, that of the steps."""

    def __init__(self, profile: Profile) -> None:
        self._before = profile
        self._counts: F64 = profile.counts.ravel().copy()
        self._counted_rows = profile.rows
        self._waiting: list[Routed] = []
        self.rows = profile.rows
        """That were routed, ever."""

    def take(self, routed: Sequence[Routed], rows: int) -> None:
        """A step of so many rows has come to its end, and used these experts; nobody writes to the ids again."""
        self._waiting += routed
        self.rows = min(self.rows + rows, MAX_ROWS_SEEN)
        if self.rows - self._counted_rows >= TOGETHER_ROWS:
            self._count()

    def profile(self) -> Profile:
        """What was counted so far, with what there was before."""
        self._count()
        before = self._before
        counts = self._counts.reshape(before.counts.shape).copy()
        return Profile(fingerprint=before.fingerprint, rows=self.rows, counts=counts)

    def _count(self) -> None:
        if self._waiting:
            layers, ids = zip(*self._waiting, strict=True)
            self._waiting.clear()
            first = np.repeat(np.array(layers) * self._before.counts.shape[1], [len(each) for each in ids])
            np.add.at(self._counts, (first[:, None] + np.concatenate(ids)).ravel(), 1.0)
        if periods := self.rows // DECAY_ROWS - self._counted_rows // DECAY_ROWS:
            self._counts *= KEPT**periods
        self._counted_rows = self.rows
