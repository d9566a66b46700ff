"""How tokens are to be chosen, as settings that have been checked; `choosing.py` chooses.

Loads next to nothing: the command line checks what it was given before it starts anything.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from protocol.errors import RequestError

SEED_LIMIT = 1 << 63
"""Seeds travel as signed 64-bit numbers."""


class SamplingError(RequestError):
    """Settings out of range: all that are, at once."""

    def __init__(self, wrong: Mapping[str, str]) -> None:
        """`wrong` says of each such field what it is and what was expected."""
        super().__init__("; ".join(f"{name} {problem}" for name, problem in wrong.items()))
        self.wrong = wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen; the defaults choose greedily. SamplingError for values out of range."""

    temperature: float = 0.0
    """0 always takes the likeliest token, 1 samples as trained, more is wilder."""
    top_k: int = 0
    """Candidates at most; 0 is no limit."""
    top_p: float = 1.0
    """Share of the probability that the candidates must reach; 1 is no limit."""
    min_p: float = 0.0
    """Least probability of a candidate as a share of the likeliest one's; 0 is no limit."""
    repeat_penalty: float = 1.0
    """More than 1 makes recent tokens less likely, 1 leaves them alone."""
    repeat_window: int = 64
    """Number of recent tokens that the penalty looks at; 0 turns it off."""
    seed: int = 0
    """Another seed, another text."""

    def __post_init__(self) -> None:
        if wrong := dict(self._problems()):
            raise SamplingError(wrong)

    def _problems(self) -> Iterator[tuple[str, str]]:
        for name, in_range, allowed in (
            ("temperature", self.temperature >= 0, "a finite number from 0"),
            ("top_k", _is_whole(self.top_k, sys.maxsize), f"a whole number from 0 to {sys.maxsize}"),
            ("top_p", 0 < self.top_p <= 1, "a number over 0 and up to 1"),
            ("min_p", 0 <= self.min_p <= 1, "a number from 0 to 1"),
            ("repeat_penalty", self.repeat_penalty > 0, "a finite number over 0"),
            ("repeat_window", _is_whole(self.repeat_window, sys.maxsize), f"a whole number from 0 to {sys.maxsize}"),
            ("seed", _is_whole(self.seed, SEED_LIMIT - 1), f"a whole number from 0 to {SEED_LIMIT - 1}"),
        ):
            value = getattr(self, name)
            if not (in_range and value < math.inf):
                yield name, f"is {value}, expected {allowed}"


def _is_whole(value: object, limit: int) -> bool:
    return isinstance(value, int) and 0 <= value <= limit
