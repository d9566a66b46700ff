"""Which experts a model's rows are sent to, and how often: a value, and the ranking that follows from it.

docs/profiles.md tells what profiles are for and how they are made; `profile_file.py` reads and writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ConfigError
from protocol.messages import I32
from protocol.model import Model

F64 = NDArray[np.float64]

MAX_SIDE = 0xFFFF
"""Layers, and experts of a layer, at most."""
MAX_EXPERTS = 1 << 18
"""Of all layers together: their ranking still fits a control message."""
MAX_ROWS_SEEN = 2**62
"""Nobody lives to see more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """How often each expert of one model was used, the newest uses weighing most."""

    fingerprint: str
    """Of the model, 16 hex digits."""
    rows: int
    """How many rows were routed, ever."""
    counts: F64
    """(layers, experts): uses, of which those of long ago weigh less; 0 throughout in a dense layer."""

    @classmethod
    def empty(cls, model: Model) -> Self:
        """Of a model that nobody has asked anything. ConfigError if it has too many experts to be ranked."""
        layers, experts = len(model.layout.layers), model.layout.experts
        if layers > MAX_SIDE or experts > MAX_SIDE or layers * experts > MAX_EXPERTS:
            found = f"{layers} layers of {experts} experts"
            raise ConfigError(f"{model.files.path}: {found}, a profile has {MAX_EXPERTS} experts in all at most")
        return cls(fingerprint=model.fingerprint, rows=0, counts=np.zeros((layers, experts), np.float64))

    @property
    def uses(self) -> float:
        """The weight of all uses together."""
        return float(self.counts.sum())

    @property
    def known(self) -> F64:
        """(layers that were used, experts): without dense layers, that is."""
        known: F64 = self.counts[self.counts.any(axis=1)]
        return known

    def mismatch(self, other: Profile) -> str:
        """Why this cannot be a profile of the model that `other` is of, with both values; empty if it can."""
        if self.fingerprint != other.fingerprint:
            return f"of the model {self.fingerprint}, expected {other.fingerprint}"
        if self.counts.shape != other.counts.shape:
            found, expected = (f"{layers} layers of {experts} experts" for layers, experts in _shapes(self, other))
            return f"of {found}, expected {expected}"
        return ""

    def ranked(self) -> NDArray[np.intp]:
        """Every expert once, as its place in `counts`: the one used most first, among equals the one that comes first.

        Those that were never used come last: the first expert of every layer, then the second, and so on.
        """
        flat = self.counts.ravel()
        used = np.flatnonzero(flat)
        hottest = used[np.argsort(-flat[used], kind="stable")]
        turns = np.arange(flat.size).reshape(self.counts.shape).T.ravel()
        return np.concatenate([hottest, turns[flat[turns] == 0]])

    def rank(self) -> I32:
        """(layers, experts): where each stands in `ranked`, as Assign carries it."""
        rank = np.empty(self.counts.size, np.int32)
        rank[self.ranked()] = np.arange(rank.size)
        return rank.reshape(self.counts.shape)


def merged(profiles: Sequence[Profile]) -> Profile:
    """One profile of the uses of all of these, which are of one model. There is one at least."""
    first = profiles[0]
    rows = min(sum(profile.rows for profile in profiles), MAX_ROWS_SEEN)
    counts: F64 = np.sum([profile.counts for profile in profiles], axis=0)
    return Profile(fingerprint=first.fingerprint, rows=rows, counts=counts)


def covering(counts: F64, share: float) -> int:
    """How many of the experts that `counts` (any shape) are of have this share of all uses, the ones used most first.

    0 if nothing was used.
    """
    ordered = np.sort(counts, axis=None)[::-1]
    sums = np.cumsum(ordered)
    if not ordered.size or not sums[-1]:
        return 0
    return min(int(np.searchsorted(sums, share * sums[-1])) + 1, int(np.count_nonzero(ordered)))


def _shapes(*profiles: Profile) -> list[tuple[int, ...]]:
    return [profile.counts.shape for profile in profiles]
