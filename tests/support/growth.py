"""How much a process grows with each request, told from samples that are noisy and have jumps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from footprint import memory_of

WARM = 1 / 3
"""Of the samples, in which everything that is kept once is made."""
KEPT_EACH = 4 << 10
"""Bytes of a request or of a trouble: a page, for what is on pages that are shared with something that stays."""
KEPT_ONCE = 2 << 20
"""Bytes that may be made later still: an arena of malloc's. It counts for little where there were many requests."""


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs (Theil and Sen): less than a quarter of them may be far off."""
    x, y = np.asarray(at, np.float64), np.asarray(values, np.float64)
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] > x[first]
    first, second = first[apart], second[apart]
    return float(np.median((y[second] - y[first]) / (x[second] - x[first]))) if len(first) else 0.0


@dataclass(slots=True)
class Growth:
    """Of one process."""

    pid: int
    memory: list[int] = field(default_factory=list)
    """Bytes of no file that it had after each request."""

    def look(self) -> None:
        """A request more is over."""
        self.memory.append(memory_of(self.pid).anonymous)

    def _warm(self) -> list[int]:
        return self.memory[int(WARM * len(self.memory)) :]

    def each(self) -> float:
        """Bytes a request, once it is warm."""
        return slope(range(len(self._warm())), self._warm())

    def most(self, troubles: int) -> float:
        """What `each` may be among so many troubles in all: members that come and go leave something, too."""
        return KEPT_EACH * (1 + troubles / len(self.memory)) + KEPT_ONCE / len(self._warm())
