"""What a simulation comes to: speeds, what a step's time consists of, and pauses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coordinator.profile import F64
from coordinator.simulation.timeline import What


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoded:
    """Steps of so many conversations, each a token, while nothing happens to anybody."""

    workers: int
    idle: int
    """Of them hold nothing: they would slow the others down, or there are more of them than experts."""
    rows: int
    step_s: F64
    """(steps,)"""
    parts_s: dict[What, float]
    """Of a step, on average."""
    local: float
    """Share of entries that the coordinator computed itself."""

    @property
    def tokens_per_s(self) -> float:
        """Of all conversations together."""
        return self.rows / float(self.step_s.mean())

    @property
    def limit(self) -> What:
        """The largest part."""
        return max(self.parts_s, key=lambda part: self.parts_s[part])

    def percentile_s(self, percent: float) -> float:
        """Of the time from token to token."""
        return float(np.percentile(self.step_s, percent))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pauses:
    """What one kind of mishap does to the token stream, each time."""

    pause_s: F64
    """(times,): the longest wait for a token after it, less what a token takes otherwise."""
    slow_s: F64
    """(times,): from the mishap until the last token that took twice as long as otherwise."""

    def percentile_s(self, percent: float) -> float:
        """Of the pauses."""
        return float(np.percentile(self.pause_s, percent))
