"""Figures of runs in turns, as values: medians with quartiles, ratios within rounds, and the order of a round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What is told of several figures of one kind."""

    median: float
    low: float
    """First quartile: a quarter of the figures lies below."""
    high: float
    """Third quartile."""
    count: int

    def __str__(self) -> str:
        """As in "16.4 [16.0-16.9] (5)"."""
        if self.count == 1:
            return f"{three_figures(self.median)} (1)"
        median, low, high = map(three_figures, (self.median, self.low, self.high))
        return f"{median} [{low}-{high}] ({self.count})"


def three_figures(value: float) -> str:
    """At least three figures, and no exponent: "0.0123", "1.20", "1234"; "0.000" for what is next to nothing."""
    if abs(value) < 0.0005:
        return "0.000"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def spread(figures: Sequence[float]) -> Spread:
    """Median and quartiles, interpolated between neighbours; ValueError if there are no figures."""
    if not figures:
        raise ValueError("at least one figure is expected")
    if len(figures) == 1:
        return Spread(median=figures[0], low=figures[0], high=figures[0], count=1)
    low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
    return Spread(median=median, low=low, high=high, count=len(figures))


def paired_ratios(ours: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """ours / theirs of each round that both have, by the rounds' numbers."""
    return [ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys())]


def in_turn(items: Sequence[Item], number: int) -> list[Item]:
    """The order of round `number`: back and forth, so that whatever drifts favours nobody."""
    return list(items) if number % 2 == 0 else list(reversed(items))


def shared_start(one: Sequence[int], other: Sequence[int]) -> int:
    """How many token ids both begin with."""
    parted = (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(parted, min(len(one), len(other)))
