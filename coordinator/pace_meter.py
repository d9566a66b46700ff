"""What is known of paces from what things take: the last few times of each, and their middle. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from coordinator.pace import Pace
from coordinator.planner import Here

KEPT = 64
LEAST = 16
"""So many times must be known before they count."""
REVISIT_S, REVISIT_LATER_S = 10.0, 300.0
"""A member that others were preferred to for so long is thought to be as fast as when it joined: what slowed it may be
over. Each time it takes twice as long, up to the second, as for who was left out: to find out costs tokens."""


class Times:
    """The last few times of one thing, in seconds."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        """It took so long once more."""
        self._last.append(seconds)

    def usual(self, part: float = 0.5) -> float | None:
        """What it takes: so large a part of the times is shorter; None while too few are known."""
        if len(self._last) < LEAST:
            return None
        return sorted(self._last)[int(part * len(self._last))]


class PaceMeter:
    """One member's calls for one row.

    What a call takes beside the kernels is judged by those that were taken in soonest, since the coordinator does other
    things before it looks.
    """

    __slots__ = ("_calls", "_entries", "_revisit_s")

    def __init__(self) -> None:
        self._entries, self._calls = Times(), Times()
        self._revisit_s = REVISIT_S

    def unused(self, for_s: float, *, left_out: bool) -> None:
        """It was given no call for so long, while others were: after a while it is forgotten what its calls took."""
        if for_s <= (REVISIT_LATER_S if left_out else self._revisit_s):
            return
        if self.pace() is not None:
            self._revisit_s = min(2 * self._revisit_s, REVISIT_LATER_S)
        self._entries, self._calls = Times(), Times()

    def observe(self, entries: int, elapsed_s: float, busy_s: float) -> None:
        """A call of so many entries took so long, of which the member says it computed for `busy_s`."""
        busy_s = min(max(busy_s, 0.0), elapsed_s)
        self._entries.add(busy_s / max(entries, 1))
        self._calls.add(elapsed_s - busy_s)

    def pace(self) -> Pace | None:
        """None while too few calls are known."""
        entry_s, call_s = self._entries.usual(), self._calls.usual(0.25)
        return None if entry_s is None or call_s is None else Pace(entry_s=entry_s, call_s=call_s)


class HereMeter:
    """What the coordinator itself takes, in steps of one row."""

    __slots__ = ("dense", "local", "send")

    def __init__(self) -> None:
        self.local, self.send, self.dense = Times(), Times(), Times()
        """For an entry in the local bank; to hand over a call; for a token, all layers' experts apart."""

    def here(self) -> Here:
        """As far as it is known."""
        local_s, send_s, dense_s = (times.usual() for times in (self.local, self.send, self.dense))
        here = Here(local=None if local_s is None else Pace(entry_s=local_s), dense_s=dense_s or 0.0)
        return here if send_s is None else replace(here, send_s=send_s)
