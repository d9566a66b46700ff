"""Choose the next token from logits, with the same result on every machine.

The order of things, each working on what the one before it left:

1. repetition penalty: the logit of every id among the last `repeat_window` is divided by `repeat_penalty` if it is
   positive, multiplied by it otherwise, once however often the id occurs;
2. at temperature 0 the highest logit wins, the lowest id among equals, and that is all;
3. top-k: the `top_k` highest logits, the lowest ids among equals;
4. temperature: each logit's weight is exp((logit - highest logit) / temperature);
5. top-p: the heaviest tokens, lowest ids first among equals, up to the one that brings their sum to `top_p` of the sum;
6. min-p: tokens that weigh at least `min_p` of the heaviest;
7. one number in [0, 1) for (seed, position) picks a token from those left, laid end to end by ascending id.

Differences, quotients and products are single IEEE operations in float64, sums run from the first to the last
(`np.cumsum`, never `np.sum`), and exp is the kernels' own, so nothing depends on the CPU that NumPy runs on.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator.randomness import uniform
from native import exponential
from protocol.errors import RequestError

F64 = NDArray[np.float64]
Ids = NDArray[np.intp]

LEAST_EXPONENT = -200.0
"""exp is 0 in fp32 long before this; what is ruled out (-inf) comes here too."""

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


def choose(logits: NDArray[np.float32], recent_ids: Sequence[int], sampling: Sampling, position: int) -> int:
    """The id of the token at `position` of a sequence (0 is its first token).

    `logits` (vocabulary,) are those of the position before and stay as they are; -inf rules a token out. `recent_ids`
    are the ids of the sequence so far, or at least the last `repeat_window` of them. RequestError if the logits hold
    NaN or +inf, or rule everything out.
    """
    values = logits.astype(np.float64)
    _penalise(values, recent_ids, sampling)
    best = int(values.argmax())  # the first of equals; NaN before anything else
    if not math.isfinite(values[best]):
        raise RequestError(
            f"no token can be chosen for position {position}: the highest logit is {values[best]}, expected a number"
        )
    if sampling.temperature == 0:
        return best
    highest, ids = values[best], np.arange(len(values))
    if 0 < sampling.top_k < len(values):
        ids = _highest(values, sampling.top_k)
        values = values[ids]
    weights = _weights(values, highest, sampling.temperature)
    if sampling.top_p < 1:
        kept = _nucleus(weights, sampling.top_p)
        ids, weights = ids[kept], weights[kept]
    weights[weights < sampling.min_p * weights.max()] = 0
    ends = np.cumsum(weights)
    # the first token that ends after the point: one without weight ends where the one before it does
    return int(ids[np.searchsorted(ends, uniform(sampling.seed, position) * ends[-1], side="right")])


def _penalise(values: F64, recent_ids: Sequence[int], sampling: Sampling) -> None:
    """Step 1, in place."""
    if sampling.repeat_penalty == 1 or not sampling.repeat_window:
        return
    ids = np.unique(np.asarray(recent_ids[-sampling.repeat_window :], np.intp))
    if not ids.size:
        return
    if ids[0] < 0 or ids[-1] >= len(values):
        raise RequestError(f"recent token ids {ids[0]} to {ids[-1]} found, expected 0 to {len(values) - 1}")
    found = values[ids]
    with np.errstate(over="ignore"):  # infinities are judged by the caller
        values[ids] = np.where(found > 0, found / sampling.repeat_penalty, found * sampling.repeat_penalty)


def _weights(values: F64, highest: np.float64, temperature: float) -> F64:
    """Step 4, with `values` as scratch memory."""
    values -= highest
    with np.errstate(over="ignore"):  # a temperature near 0 leaves nothing but the highest
        values /= temperature
    np.maximum(values, LEAST_EXPONENT, out=values)
    return exponential(values.astype(np.float32)).astype(np.float64)


def _nucleus(weights: F64, share: float) -> Ids:
    """Step 5: ascending indices of the heaviest, up to the one that brings their sum to `share` of the sum."""
    ordered = np.sort(weights)[::-1]
    sums = np.cumsum(ordered)
    last = int(np.searchsorted(sums, share * sums[-1]))
    return _first(weights, last + 1, ordered[last])


def _highest(values: F64, count: int) -> Ids:
    """Ascending indices of the `count` highest values, the lowest indices among equals."""
    place = len(values) - count
    return _first(values, count, np.partition(values, place)[place])


def _first(values: F64, count: int, least: np.float64) -> Ids:
    """Ascending indices of the `count` highest values, of which `least` is the lowest."""
    kept = values > least
    kept[np.flatnonzero(values == least)[: count - np.count_nonzero(kept)]] = True
    return np.flatnonzero(kept)
