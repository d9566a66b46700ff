"""Whether hints are followed at all: what messages take with and without is compared, in turns. Pure.

What hints save and cost beside reads (threads that take turns, pages that displace others, a disk that has two to
serve) cannot be counted, but it can be timed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

WINDOW = 96
"""Messages of a turn."""
TURNS = (True, False, False, True)
"""With hints, without, without, with: so a drift weighs on neither."""
FIRST_HOLD, LONGEST_HOLD = 2048, 32768
"""Messages for which what was found holds: twice as many each time that it is found again."""
IDLE_S = 1.0
"""Time between two messages after which the second does not belong to a step that goes on."""


@dataclass(slots=True, kw_only=True)
class Trial:
    """Begins with hints."""

    on: bool = True
    """Whether hints are followed now."""
    found: bool | None = None
    """Whether they paid at the last comparison; None before the first."""
    saved: float = 0.0
    """Part of the time that they saved then; below 0, that they cost."""
    _turn: int = 0
    _seen: int = 0
    _took: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})
    _hold: int = FIRST_HOLD
    _left: int = 0

    def message(self, since_s: float) -> bool:
        """A message of few rows has come, so many seconds after the one before; True if that ends a comparison."""
        if self._left:
            self._left -= 1
            self.on = self.on if self._left else TURNS[0]
            return False
        if since_s > IDLE_S:
            return False
        if self._seen:  # the first one of a turn is of the turn before
            self._took[self.on] += since_s
        self._seen += 1
        return self._seen > WINDOW and self._next_turn()

    def _next_turn(self) -> bool:
        self._seen = 0
        self._turn += 1
        if self._turn < len(TURNS):
            self.on = TURNS[self._turn]
            return False
        before, with_them, without = self.found, self._took[True], self._took[False]
        self.found = self.on = with_them <= without
        self.saved = 1.0 - with_them / without if without else 0.0
        self._hold = min(2 * self._hold, LONGEST_HOLD) if self.found == before else FIRST_HOLD
        self._turn, self._left, self._took = 0, self._hold, {True: 0.0, False: 0.0}
        return True
