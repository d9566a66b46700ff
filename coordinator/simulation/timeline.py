"""Simulated time: the coordinator's clock, and what happens elsewhere meanwhile."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Happening = Callable[[float], None]
"""Told when it happens, in seconds: the coordinator's clock may be ahead, for it is busy and looks later."""


class Timeline:
    """Seconds since the beginning, as the coordinator's clock shows them. What happens at one time happens in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._to_come: list[tuple[float, int, Happening]] = []
        self._order = itertools.count()

    def __call__(self) -> float:
        """The time: this is a clock."""
        return self.now

    def at(self, when: float, happening: Happening) -> None:
        """It will happen then."""
        heapq.heappush(self._to_come, (when, next(self._order), happening))

    def spend(self, seconds: float) -> None:
        """The coordinator is busy for so long."""
        self.now += seconds

    def catch_up(self) -> None:
        """All that has happened until now."""
        while self._to_come and self._to_come[0][0] <= self.now:
            self._next()

    def wait(self, seconds: float, done: Callable[[], bool]) -> None:
        """The coordinator waits until that is done, or for so long."""
        until = self.now + seconds
        self.catch_up()
        while not done() and self._to_come and self._to_come[0][0] <= until:
            self.now = max(self.now, self._to_come[0][0])
            self._next()
        if not done():
            self.now = until

    def _next(self) -> None:
        when, _, happening = heapq.heappop(self._to_come)
        happening(when)
