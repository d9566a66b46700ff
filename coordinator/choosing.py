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
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coordinator.randomness import uniform
from coordinator.sampling import Sampling
from native import exponential
from protocol.errors import RequestError

F64 = NDArray[np.float64]
Ids = NDArray[np.intp]

LEAST_EXPONENT = -200.0
"""exp is 0 in fp32 long before this; what is ruled out (-inf) comes here too."""


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
