"""A window in two halves: while others compute the experts of one, the dense half of the other is computed here.

Pure: which windows that pays for, and where they are cut. No bit depends on it, for no row's bits depend on what else
is in its window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the command line's configuration needs `When` only
    from coordinator.window import Window
    from protocol.geometry import Geometry

When = Literal["auto", "on", "off"]
"""What can be said about when windows are cut."""

TILE = 8
"""Rows that kernels take together: a prompt's chunk is cut at a multiple of it."""

ROWS_AWAY = 8
"""Rows from which on halves were measured to pay while processors elsewhere have nothing else to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """When a window is computed in two halves."""

    when: When = "auto"
    """"auto": where it pays. "on": wherever somebody else computes, and there is a second row."""
    host: str = ""
    """What this host is called. Whoever computes on it takes from the same processors and memory."""
    rows_here: int | None = None
    """"auto", while all compute on this host: windows of fewer rows stay whole, for each half reads the weights that
    its rows need (docs/results.md has what that costs). None: all do."""
    rows_away: int | None = ROWS_AWAY
    """"auto", while somebody computes on another host: the same."""

    @classmethod
    def of(cls, when: When, host: str, device: str, geometry: Geometry) -> Halves:
        """For a coordinator with this device.

        On one host each half must have a tile of rows for every expert, on the average, for then it costs the
        processors nothing. With a GPU "auto" is "off": the dense half is short there, and what halves cost has not been
        measured.
        """
        if device != "cpu":
            return cls(when=when, host=host, rows_here=None, rows_away=None)
        return cls(when=when, host=host, rows_here=-(-2 * TILE * geometry.experts // max(1, geometry.experts_used)))

    def least_rows(self, hosts: Iterable[str]) -> int | None:
        """Rows from which on windows are cut, None if never, while others compute on these hosts."""
        others = set(hosts)
        if self.when == "off" or not others:
            return None
        if self.when == "on":
            return 2
        return self.rows_here if others == {self.host} else self.rows_away


def halves_of(window: Window, least_rows: int | None) -> list[Window]:
    """The window, whole or in two, in the order of its rows."""
    if least_rows is None or window.rows < max(2, least_rows):
        return [window]
    cut = cut_of(window.bounds)
    return [window.between(0, cut), window.between(cut, window.rows)]


def cut_of(bounds: Sequence[int]) -> int:
    """The first row of the second half, of 2 rows or more in chunks with these bounds.

    Between two chunks, if no half then has more than five eighths of the rows; else in the middle, within a chunk.
    """
    rows = bounds[-1]
    between = min(bounds[1:-1], key=lambda bound: abs(2 * bound - rows), default=0)
    if 4 * abs(2 * between - rows) <= rows:
        return between
    middle = rows // 2
    return middle if middle < 2 * TILE else middle // TILE * TILE
