"""What a token is expected to take under a placement, and what limits it. Pure, and over many sampled rows at a time.

A layer is done when its last holder is. Members are sent their calls one after another, and each is then done after its
call's time and its entries'; the device and the local bank begin when all calls are sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coordinator.pace import Paces
from coordinator.placement import Placement
from coordinator.profile import F64
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
    layer_s = np.zeros(len(rows))
    parts = np.zeros((len(paces.serials), 3))
    for layer in stock.layers:
        entries = shared_out(rows[layer], holders_of(placement, layer, paces), paces)
        seconds, of_holders = _last(entries, paces)
        layer_s[layer] = seconds
        parts += of_holders
    return Expected(layer_s=layer_s, dense_s=dense_s, paces=paces, parts=parts)


def holders_of(placement: Placement, layer: int, paces: Paces) -> NDArray[np.bool_]:
    """(experts, holders): who may be asked for which expert of a layer: one at least. ValueError as of `expected`."""
    owner = placement.owner[layer]
    able = np.asarray(owner[:, None] == paces.serials[None, :], np.bool_)
    if not able.any(axis=1).all():
        unknown = np.setdiff1d(owner, paces.serials).tolist()
        raise ValueError(f"paces of {paces.serials.tolist()}, also of {unknown} expected")
    if placement.also.size:
        able |= placement.also[layer][:, None] == paces.serials[None, :]
    for team in np.unique(placement.runners[placement.runners[:, 1] >= 0, 1]):
        mates = np.isin(paces.serials, placement.runners[placement.runners[:, 1] == team, 0])
        able |= np.logical_or.reduce(able[:, mates], axis=1, keepdims=True) & mates
    return able


def shared_out(ids: I32, able: NDArray[np.bool_], paces: Paces) -> I64:
    """(samples, holders): how many entries each has of rows with `ids` (samples, k), as the plan shares them out.

    What only one of the `able` (experts, holders) can compute is its; then each entry goes to whoever would be done
    with it first.
    """
    samples, holders = len(ids), able.shape[1]
    free = able.sum(axis=1) > 1
    only = able.argmax(axis=1)
    fixed = ~free[ids]
    at = np.arange(samples)[:, None] * holders + only[ids]
    entries = np.bincount(at[fixed], minlength=samples * holders).reshape(samples, holders)
    for expert in ids.T if free.any() else ():
        which = np.flatnonzero(free[expert])
        done = paces.call_s + (entries[which] + 1) * paces.entry_s
        chosen = np.where(able[expert[which]], done, np.inf).argmin(axis=1)
        entries[which, chosen] += 1
    return entries.astype(np.int64)


def done_s(entries: I64, paces: Paces) -> F64:
    """(samples, holders): when each holder is done with its `entries` (samples, holders); 0 if it has none."""
    used = entries > 0
    done: F64 = np.where(used, _begins(used, paces) + paces.call_s + entries * paces.entry_s, 0.0)
    return done


def _begins(used: NDArray[np.bool_], paces: Paces) -> F64:
    """(samples, holders): when each one's call has been handed over; of those who get none, when all have."""
    members = used[:, paces.are_members]
    begins = np.repeat(members.sum(axis=1, keepdims=True), used.shape[1], axis=1) * paces.send_s
    sent_s = np.add.accumulate(members, axis=1, dtype=np.int64) * paces.send_s
    begins[:, paces.are_members] = np.where(members, sent_s, begins[:, paces.are_members])
    return begins


def _last(entries: I64, paces: Paces) -> tuple[float, F64]:
    """The layer's seconds on average, and for each holder (holders, 3) the parts of them while it was the last."""
    done = done_s(entries, paces)
    sample = np.arange(len(done))
    last = done.argmax(axis=1)
    kernels = entries[sample, last] * paces.entry_s[last]
    calls = paces.call_s[last]
    spent = np.stack([done[sample, last] - kernels - calls, calls, kernels], axis=1)
    parts = np.zeros((done.shape[1], 3))
    np.add.at(parts, last, spent)
    return float(done.max(axis=1).mean()), parts / len(done)
