"""How fast a prompt is read, and how long the rest may take."""

from __future__ import annotations

from collections import deque

LATELY_S = 10.0
"""Speed is that of the last chunks, as many as took this long together."""


class Reading:
    """The progress of one prompt, whose tokens cost more and more: attention looks back at all before them."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._lately: deque[tuple[int, float]] = deque()

    def take(self, done: int, now: float) -> None:
        """`done` tokens are read at `now` (seconds of any clock)."""
        if self._first is None:
            self._first = done, now
        self._lately.append((done, now))
        while len(self._lately) > 2 and now - self._lately[1][1] >= LATELY_S:
            self._lately.popleft()

    @property
    def speed(self) -> float | None:
        """Tokens a second, lately; None before the second chunk."""
        cost = _cost(self._lately[0], self._lately[-1]) if self._lately else None
        return 1 / cost if cost else None

    def left_s(self, total: int) -> float | None:
        """Seconds until all `total` tokens are read, if their cost grows on as it did; None before the second chunk."""
        if self._first is None:
            return None
        lately_from, (done, _) = self._lately[0], self._lately[-1]
        lately, ever = _cost(lately_from, self._lately[-1]), _cost(self._first, self._lately[-1])
        if lately is None or ever is None:
            return None
        apart, middle = (lately_from[0] - self._first[0]) / 2, (lately_from[0] + done) / 2  # of what has these costs
        growth = max(0.0, (lately - ever) / apart) if apart > 0 else 0.0
        growth = min(growth, lately / middle)  # attention alone grows no faster
        return (total - done) * (lately + growth * (total - lately_from[0]) / 2)


def _cost(first: tuple[int, float], last: tuple[int, float]) -> float | None:
    """Seconds a token."""
    tokens, seconds = last[0] - first[0], last[1] - first[1]
    return seconds / tokens if tokens > 0 and seconds > 0 else None
