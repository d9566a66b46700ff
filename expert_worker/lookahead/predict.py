"""Which experts a layer will need, guessed while an earlier one is computed: pure, and never more than advice.

A predictor sees the inputs of layers as they are published. From those of a layer it names experts of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from expert_worker.lookahead.routers import Routers
from protocol.errors import ConfigError
from protocol.messages import F32, I32

MARGIN = 0
"""Experts that are named for each row beyond those that a router chooses: more cost more reads than they find."""

NO_EXPERTS: I32 = np.empty(0, np.int32)


class Predictor(Protocol):
    """Names experts of the layer after this one."""

    def predict(self, step: int, layer: int, rows: F32) -> I32:
        """Experts of layer + 1, ascending, from the input (rows, width) of `layer` of a step; none for no idea."""


def top(scores: F32, count: int) -> I32:
    """The `count` highest of each row (rows, experts), together: ascending, each once. Ties go to the lowest id.

    What is no number is never among them.
    """
    best = np.argsort(-scores, axis=1, kind="stable")[:, :count]  # NaN comes last
    sound = ~np.isnan(np.take_along_axis(scores, best, axis=1))
    return np.unique(best[sound]).astype(np.int32)


class NextRouter:
    """The next layer's router on this layer's input: the residual stream changes little from layer to layer."""

    def __init__(self, routers: Routers, *, rescaled: bool, margin: int = MARGIN) -> None:
        """`rescaled`: the input is divided by this layer's norm weights and multiplied by the next one's first."""
        self._weights = routers.weights
        self._count = min(routers.experts, routers.chosen + margin)
        self._factors = _factors(routers) if rescaled else {}

    def predict(self, step: int, layer: int, rows: F32) -> I32:
        weights = self._weights.get(layer + 1)
        if weights is None:
            return NO_EXPERTS
        factor = self._factors.get(layer)
        with np.errstate(all="ignore"):
            scaled: F32 = rows if factor is None else rows * factor
            scores: F32 = scaled @ weights.T
        return top(scores, self._count)


class Seen:
    """What earlier steps used in each layer, as far as the published inputs tell: their own routers choose again."""

    def __init__(self, routers: Routers) -> None:
        self._routers = routers

    def used(self, layer: int, rows: F32) -> I32:
        """What `layer` uses for its own input (rows, width)."""
        weights = self._routers.weights.get(layer)
        if weights is None:
            return NO_EXPERTS
        with np.errstate(all="ignore"):
            scores: F32 = rows @ weights.T
        return top(scores, self._routers.chosen)


class Previous:
    """What the step before used in that layer. The last layer's input is not published, so for it there is no idea."""

    def __init__(self, routers: Routers) -> None:
        self._seen = Seen(routers)
        self._last: dict[int, I32] = {}

    def predict(self, step: int, layer: int, rows: F32) -> I32:
        self._last[layer] = self._seen.used(layer, rows)
        return self._last.get(layer + 1, NO_EXPERTS)


class Popularity:
    """What that layer has used most, the latest counting most. As with Previous, no idea of the last layer."""

    DECAY = 0.99
    """Of a count with each step: a hundred steps are remembered, more or less."""

    def __init__(self, routers: Routers, margin: int = MARGIN) -> None:
        self._seen = Seen(routers)
        self._count = min(routers.experts, routers.chosen + margin)
        self._counts = {layer: np.zeros((1, routers.experts), np.float32) for layer in routers.weights}

    def predict(self, step: int, layer: int, rows: F32) -> I32:
        self.learn(layer, self._seen.used(layer, rows))
        return self.favourites(layer + 1)

    def learn(self, layer: int, used: I32) -> None:
        """A step has used these experts."""
        if (counts := self._counts.get(layer)) is not None:
            counts *= self.DECAY
            counts[0, used] += 1

    def favourites(self, layer: int) -> I32:
        """Ascending; none before anything was used."""
        counts = self._counts.get(layer)
        return NO_EXPERTS if counts is None or not counts.any() else top(counts, self._count)


class Random:
    """As many as a router chooses, whichever they are: what bad advice costs."""

    def __init__(self, routers: Routers) -> None:
        self._routers = routers
        self._chance = np.random.default_rng(0)

    def predict(self, step: int, layer: int, rows: F32) -> I32:
        if layer + 1 not in self._routers.weights:
            return NO_EXPERTS
        chosen = self._chance.choice(self._routers.experts, self._routers.chosen, replace=False)
        return np.sort(chosen).astype(np.int32)


class Oracle:
    """What was used when the same was asked before: the most that any prediction can be worth."""

    def __init__(self, used: Mapping[tuple[int, int], I32]) -> None:
        """`used` by (step, layer), see `trace.py`."""
        self._used = used

    def predict(self, step: int, layer: int, rows: F32) -> I32:
        return self._used.get((step, layer + 1), NO_EXPERTS)


def _shared(routers: Routers) -> Predictor:
    raise ConfigError("predictor next-router+shared: no shared expert in this model; next-router is the same without")


PREDICTORS: Mapping[str, Callable[[Routers], Predictor]] = {
    "next-router": lambda routers: NextRouter(routers, rescaled=False),
    "next-router-rescaled": lambda routers: NextRouter(routers, rescaled=True),
    "next-router+shared": _shared,
    "previous": Previous,
    "popularity": Popularity,
    "random": Random,
}
"""By name, but for the oracle, which needs a file; the first has the best recall (docs/results.md): the default."""


def _factors(routers: Routers) -> dict[int, F32]:
    """(width,) for each layer that has a next one. Where this layer's norm is 0 its input is too, and stays so."""
    factors = {}
    for layer, own in routers.norms.items():
        if (following := routers.norms.get(layer + 1)) is not None:
            factors[layer] = np.divide(following, own, out=np.zeros_like(own), where=own != 0)
    return factors
