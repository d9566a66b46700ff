"""What a token is expected to take under a placement, and what limits it. Pure, and over many sampled rows at a time.

A layer is done when its last holder is. Members are sent their calls one after another, and each is then done after its
call's time and its entries'; the device and the local bank begin when all calls are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import native
from coordinator.pace import Paces
from coordinator.placement import Placement
from coordinator.plan import LOCAL
from coordinator.profile import F64
from coordinator.spread import NOBODY, columns_of
from protocol.messages import I32, I64
from protocol.stock import Stock

What = Literal["dense", "sending", "calls", "kernels"]
"""The coordinator's own half of the layers; handing over calls; what calls take beside kernels; the kernels."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """Of one token of one conversation, in seconds."""

    layer_s: F64
    """(layers,): of each layer's experts; 0 in a dense one."""
    dense_s: float
    """Of all else: attention, routers, head."""
    paces: Paces
    parts: F64
    """(holders, 3): while this holder was the last of its layer: waiting for others' calls to be sent, for its call
    beside its kernels, for its kernels."""

    @property
    def experts_s(self) -> float:
        """Of all layers' experts."""
        return float(self.layer_s.sum())

    @property
    def token_s(self) -> float:
        """From token to token."""
        return self.dense_s + self.experts_s

    @property
    def limits(self) -> dict[What, float]:
        """How the token's time is made up."""
        sending, calls, kernels = self.parts.sum(axis=0).tolist()
        return {"dense": self.dense_s, "sending": sending, "calls": calls, "kernels": kernels}

    @property
    def limit(self) -> What:
        """The largest part."""
        return max(self.limits.items(), key=lambda item: item[1])[0]

    def last_of(self, serial: int) -> float:
        """Seconds of a token for which all wait for this holder, be it one that is not among them."""
        return float(self.parts[self.paces.serials == serial].sum())


def expected(placement: Placement, stock: Stock, rows: I32, paces: Paces, *, dense_s: float = 0.0) -> Expected:
    """Over sampled `rows` (layers, samples, k), of which those of dense layers do not count.

    ValueError if the pace of a holder is missing.
    """
    layers = list(stock.layers)
    able = holders_of(placement, layers, paces)
    entries = np.array([shared_out(rows[layer], who, paces) for layer, who in zip(layers, able, strict=True)])
    layer_s, parts = np.zeros(len(rows)), np.zeros((len(paces.serials), 3))
    if layers:
        layer_s[layers], parts = _last(entries, paces)
    return Expected(layer_s=layer_s, dense_s=dense_s, paces=paces, parts=parts)


def holders_of(placement: Placement, layers: Sequence[int], paces: Paces) -> NDArray[np.bool_]:
    """(layers, experts, holders): who may be asked for which expert: one at least. ValueError as of `expected`."""
    owner = placement.owner[layers]
    column = columns_of(owner, paces.serials)
    if (column == NOBODY).any():
        unknown = np.unique(owner[column == NOBODY]).tolist()
        raise ValueError(f"paces of {paces.serials.tolist()}, also of {unknown} expected")
    able = np.zeros((*owner.shape, len(paces.serials)), np.bool_)
    np.put_along_axis(able, column[:, :, None], True, axis=2)
    if placement.also.size:
        also = placement.also[layers]
        second = columns_of(also, paces.serials)
        layer, expert = np.nonzero((second != NOBODY) & (also != LOCAL))  # LOCAL is no second holder, but none
        able[layer, expert, second[layer, expert]] = True
    for team in np.unique(placement.runners[placement.runners[:, 1] >= 0, 1]):
        mates = np.isin(paces.serials, placement.runners[placement.runners[:, 1] == team, 0])
        able[:, :, mates] = able[:, :, mates].any(axis=2, keepdims=True)
    return able


def shared_out(ids: I32, able: NDArray[np.bool_], paces: Paces) -> I64:
    """(samples, holders): how many entries each has of rows with `ids` (samples, k), as the plan shares them out.

    What only one of the `able` (experts, holders) can compute is its; then each entry goes to whoever would be done
    with it first. ValueError if nobody can compute one.
    """
    return native.shared_out(ids, np.ascontiguousarray(able).view(np.uint8), paces.entry_s, paces.call_s)


def done_s(entries: I64, paces: Paces) -> F64:
    """(samples, holders): when each holder is done with its `entries` (samples, holders); 0 if it has none."""
    return native.done_s(entries, paces.entry_s, paces.call_s, paces.send_s, paces.are_members.start)


def _last(entries: I64, paces: Paces) -> tuple[F64, F64]:
    """Of `entries` (layers, samples, holders): the layers' seconds (layers,) on average, and for each holder
    (holders, 3) the parts of them while it was the last one."""
    layers, samples, holders = entries.shape
    done = done_s(entries.reshape(-1, holders), paces)
    last = done.argmax(axis=1)
    sample = np.arange(len(done))
    done_last = done[sample, last]
    kernels = entries.reshape(-1, holders)[sample, last] * paces.entry_s[last]
    calls = paces.call_s[last]
    spent = np.stack([done_last - kernels - calls, calls, kernels], axis=1)
    parts = np.zeros((layers, holders, 3))
    np.add.at(parts, (sample // samples, last), spent)
    return done_last.reshape(layers, samples).mean(axis=1), (parts / samples).sum(axis=0)
