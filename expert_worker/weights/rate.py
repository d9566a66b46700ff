"""How fast bytes are given: not faster than was said, so that a line has room for what answers wait for. Pure."""

from __future__ import annotations

BURST_S = 0.1
"""Of silence that may be made up for."""


class Rate:
    """So many bytes a second, evenly. Times are readings of any one clock, in seconds."""

    def __init__(self, bytes_per_s: float, now: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._next = now

    def due(self, now: float) -> float:
        """Seconds until the next bytes may be sent, 0 for at once."""
        return max(0.0, self._next - now)

    def sent(self, count: int, now: float) -> None:
        """So many were."""
        self._next = max(self._next, now - BURST_S) + count / self._bytes_per_s
