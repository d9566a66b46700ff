"""Whether paces have become other than those that a placement was made by: for good, not for a moment. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.pace import TYPICAL_ENTRIES, Pace

RATIO = 1.25
"""A pace that differs by more than this factor is another one."""
REVIEWS = 3
"""So many times in a row."""


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
        drifted = any(
            not self._placed.get(serial, 0.0) / RATIO <= pace.seconds(TYPICAL_ENTRIES) <= RATIO * self._placed[serial]
            if serial in self._placed
            else True
            for serial, pace in paces.items()
        )
        self._times = self._times + 1 if drifted else 0
        return self._times >= REVIEWS
