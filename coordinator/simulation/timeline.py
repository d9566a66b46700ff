"""Simulated time: the coordinator's clock, and what happens elsewhere meanwhile."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Literal, get_args

What = Literal["dense", "sending", "calls", "kernels"]
"""What the coordinator's time goes to: its own half of the layers, and the head; planning, and handing over calls;
waiting while no kernel runs, that is for the network and for processes to wake up, and taking in answers; its own
experts, and waiting while somebody's kernels run."""
WHATS: tuple[What, ...] = get_args(What)

Happening = Callable[[float], None]
"""Told when it happens, in seconds: the coordinator's clock may be ahead, for it is busy and looks later."""


class Timeline:
    """Seconds since the beginning, as the coordinator's clock shows them. What happens at one time happens in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.spent_s = dict.fromkeys(WHATS, 0.0)
        """All time until now, by what it went to."""
        self.computing = 0
        """Kernels that run elsewhere."""
        self._to_come: list[tuple[float, int, Happening]] = []
        self._order = itertools.count()

    def __call__(self) -> float:
        """The time: this is a clock."""
        return self.now

    def at(self, when: float, happening: Happening) -> None:
        """It will happen then."""
        heapq.heappush(self._to_come, (when, next(self._order), happening))

    def spend(self, seconds: float, what: What) -> None:
        """The coordinator is busy for so long."""
        self.now += seconds
        self.spent_s[what] += seconds

    def catch_up(self) -> None:
        """All that has happened until now."""
        while self._to_come and self._to_come[0][0] <= self.now:
            self._next()

    def wait(self, seconds: float, done: Callable[[], bool]) -> None:
        """The coordinator waits until that is done, or for so long."""
        until = self.now + seconds
        self.catch_up()
        while not done() and self._to_come and self._to_come[0][0] <= until:
            self._idle_until(self._to_come[0][0])
            self._next()
        if not done():
            self._idle_until(until)

    def _idle_until(self, when: float) -> None:
        if when > self.now:
            self.spend(when - self.now, "kernels" if self.computing else "calls")

    def _next(self) -> None:
        when, _, happening = heapq.heappop(self._to_come)
        happening(when)
