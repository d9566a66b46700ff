"""Whether paces have become other than those that a placement was made by: for good, not for a moment. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.pace import TYPICAL_ENTRIES, Pace

RATIO = 1.25
"""A pace that differs by more than this factor is another one."""
REVIEWS = 3
"""So many times in a row."""
FAR = 4.0
"""One that differs by more than this factor is another one at once: meanwhile every token waits for it."""
TINY_S = 1e-9


class Drift:
    """Paces by serial number: of those who are there, and of when they were placed."""

    def __init__(self) -> None:
        self._placed: dict[int, float] = {}
        self._times = 0

    def placed(self, paces: Mapping[int, Pace]) -> None:
        """A placement was made by these."""
        self._placed = {serial: pace.seconds(TYPICAL_ENTRIES) for serial, pace in paces.items()}
        self._times = 0

    def seen(self, paces: Mapping[int, Pace]) -> bool:
        """These were found at a review; True if it is time to see whether another placement is better."""
        factors = [self._factor(serial, pace.seconds(TYPICAL_ENTRIES)) for serial, pace in paces.items()]
        factor = max(factors, default=1.0)
        self._times = REVIEWS if factor > FAR else self._times + 1 if factor > RATIO else 0
        return self._times >= REVIEWS

    def _factor(self, serial: int, seconds: float) -> float:
        """By which a pace differs from what it was; one that was not known then differs, but not by far."""
        then = self._placed.get(serial)
        if then is None:
            return FAR
        slower, quicker = max(seconds, TINY_S), max(then, TINY_S)
        return max(slower / quicker, quicker / slower)
