"""Counting which experts rows are sent to, beside the steps that do it.

A layer costs an item of a list; what was noted is counted once a step, and made to weigh less once in thousands of
rows.
"""

from __future__ import annotations

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


class Recorder:
    """Goes on with a profile. Used by one thread, that of the steps."""

    def __init__(self, profile: Profile) -> None:
        self._before = profile
        self._counts: F64 = profile.counts.ravel().copy()
        self._noted: list[tuple[int, I32]] = []
        self.rows = profile.rows
        """That were routed, ever."""

    def begin(self) -> None:
        """A step begins: what was noted of one that failed does not count."""
        self._noted.clear()

    def note(self, layer: int, ids: I32) -> None:
        """Rows of the step use these experts (rows, used) of a layer, which has them; nobody writes to `ids` again."""
        self._noted.append((layer, ids))

    def count(self, rows: int) -> None:
        """The step, of so many rows, has come to its end: count what was noted."""
        if not self._noted:
            return
        layers, ids = zip(*self._noted, strict=True)
        self._noted.clear()
        places = np.repeat(np.array(layers) * self._before.counts.shape[1], [each.size for each in ids])
        places += np.concatenate(ids, axis=None)
        np.add.at(self._counts, places, 1.0)
        periods = self.rows // DECAY_ROWS
        self.rows = min(self.rows + rows, MAX_ROWS_SEEN)
        if passed := self.rows // DECAY_ROWS - periods:
            self._counts *= KEPT**passed

    def profile(self) -> Profile:
        """What was counted so far, with what there was before."""
        before = self._before
        counts = self._counts.reshape(before.counts.shape).copy()
        return Profile(fingerprint=before.fingerprint, rows=self.rows, counts=counts)
