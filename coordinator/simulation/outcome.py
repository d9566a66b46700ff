"""What a simulation comes to: speeds, what a step's time consists of, and pauses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from coordinator.profile import F64
from coordinator.simulation.timeline import What
from protocol.messages import I64

LONG = 2.0
"""Times what a step takes otherwise, that is a pause."""


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lived:
    """A long time of answering, in which workers had mishaps at random. No step was lost, or it would have ended."""

    workers: int
    """At the beginning."""
    rows: int
    usual_s: float
    """What a step took before anything happened, the median."""
    step_s: F64
    """(steps,): how long steps took."""
    times: I64
    """(steps,): how many took so long."""
    counts: Mapping[str, int]
    """How often each mishap happened."""
    most_at_once: int
    """Workers that had one at the same time."""

    @property
    def seconds(self) -> float:
        """That passed."""
        return float(self.step_s @ self.times)

    @property
    def steps(self) -> int:
        """Of all conversations together; each got a token of each."""
        return int(self.times.sum())

    @property
    def tokens_per_s(self) -> float:
        """Of all conversations together."""
        return self.rows * self.steps / self.seconds

    @property
    def degraded(self) -> float:
        """Share of the time that went to steps which took LONG times what they usually do."""
        slow = self.step_s > LONG * self.usual_s
        return float(self.step_s[slow] @ self.times[slow]) / self.seconds

    def percentile_s(self, percent: float) -> float:
        """Of the time from token to token; 100: the longest."""
        order = np.argsort(self.step_s)
        upto = np.cumsum(self.times[order])
        at = int(np.searchsorted(upto, percent / 100 * upto[-1]))
        return float(self.step_s[order][min(at, len(order) - 1)])
