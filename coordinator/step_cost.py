"""What a row more costs a step, learnt from how long steps take; and for whose drafts it is worth that. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

FIRST_SHARE = 0.5
"""Of the time of a step of one row, what each row more is thought to cost, until steps of several rows were seen."""
FIRST_WEIGHT = 1.0
"""How many rows of difference between steps weigh as much as that first thought."""
MEMORY = 0.95
"""Weight of all earlier steps, beside the newest."""
OUTLIER = 4.0
"""A step that takes so many times what was expected counts as this: a machine that stalls tells nothing."""


class StepCost:
    """Time of a step as a line over its rows, fitted to the last steps."""

    def __init__(self) -> None:
        self._weight = self._rows = self._seconds = 0.0  # of the steps so far, and their weighted means
        self._spread = self._joint = 0.0  # sums of squares and products around the means

    def observe(self, rows: int, seconds: float) -> None:
        """A step of few rows, none of a prompt, took so long."""
        if self._weight:
            seconds = min(seconds, OUTLIER * self.of(rows))
        weight = MEMORY * self._weight
        total = weight + 1
        more_rows, more_seconds, share = rows - self._rows, seconds - self._seconds, weight / total
        self._spread = MEMORY * self._spread + share * more_rows * more_rows
        self._joint = MEMORY * self._joint + share * more_rows * more_seconds
        self._rows += more_rows / total
        self._seconds += more_seconds / total
        self._weight = total

    @property
    def row(self) -> float:
        """Of one row more; in seconds once a step was observed."""
        mean = self._seconds or 1.0
        first = FIRST_SHARE * mean / (1 + FIRST_SHARE * max(self._rows - 1, 0))
        slope = (self._joint + FIRST_WEIGHT * first) / (self._spread + FIRST_WEIGHT)
        return min(max(slope, 0.0), mean / max(self._rows, 1))

    def of(self, rows: int) -> float:
        """Of a step of so many rows, in the same unit."""
        return (self._seconds or 1.0) + self.row * (rows - (self._rows or 1))


def worth_drafting(chances: Sequence[Sequence[float]], rows: int, spare: int, cost: StepCost) -> list[int]:
    """How many of its drafts each sequence gets verified, `spare` at most in all; `chances` are Draft.chances of each.

    `rows` are in the window already, one of each of these sequences among them. The drafts with the best chances come
    first, as long as each makes the tokens expected a second more.
    """
    given = [0] * len(chances)
    waiting = [(-row[0], index) for index, row in enumerate(chances) if row]
    heapq.heapify(waiting)
    tokens, time, row = float(len(chances)), cost.of(rows), cost.row
    for _ in range(spare):
        if not waiting or -waiting[0][0] * time <= tokens * row:
            break
        chance, index = heapq.heappop(waiting)
        given[index] += 1
        tokens, time = tokens - chance, time + row
        if given[index] < len(chances[index]):
            heapq.heappush(waiting, (-chances[index][given[index]], index))
    return given
