"""How much a process grows with each answer, told from samples that are noisy and have jumps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from footprint import memory_of

WARM = 1 / 3
"""Of the samples, in which everything that is kept once is made."""


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs (Theil and Sen): less than a quarter of them may be far off."""
    x, y = np.asarray(at, np.float64), np.asarray(values, np.float64)
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] > x[first]
    first, second = first[apart], second[apart]
    return float(np.median((y[second] - y[first]) / (x[second] - x[first]))) if len(first) else 0.0


@dataclass(slots=True)
class Growth:
    """Of one process."""

    pid: int
    answers: list[int] = field(default_factory=list)
    """That had been given, at each sample."""
    memory: list[int] = field(default_factory=list)
    """Bytes of no file that it had."""

    def look(self, answers: int) -> None:
        """A sample."""
        self.answers.append(answers)
        self.memory.append(memory_of(self.pid).anonymous)

    def per_answer(self) -> float:
        """Bytes, once it is warm."""
        warm = int(WARM * len(self.answers))
        return slope(self.answers[warm:], self.memory[warm:])
