"""Which placement is the best one now: some are tried on sampled rows, and whoever slows all down is left out. Pure.

First comes what is in force, or else an even placement, then everybody by pace, then without the slowest ones: another
one must be better by more than measured paces are worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from coordinator.cost import Expected, expected
from coordinator.demand import Demand
from coordinator.pace import NOTICEABLE_S, Pace, Paces, farther_s
from coordinator.placement import Holder, Placement, paced, place
from protocol.messages import I32, U8
from protocol.stock import Stock

WORTH = 0.95
"""A placement is better than another one if its layers take less than this part of the time, noticeably."""
TRIED_LAYERS = 8
"""Placements are compared by so many layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """What the coordinator itself takes."""

    local: Pace | None = None
    """Of its own bank; None if nobody knows: then it is taken to be as fast as a member."""
    send_s: float = 30e-6
    """Seconds to hand over a call."""
    dense_s: float = 0.0
    """Seconds of a token, all layers' experts apart."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planner:
    """What stays the same, whoever comes and goes."""

    stock: Stock
    own: U8
    """(layers, experts): what the coordinator's slots hold."""
    rank: I32 | None = None
    demand: Demand | None = None
    """None: nobody knows how many experts a row has, and no placement can be compared with another."""
    replicas: float = 1.0
    """Copies of all experts together, as a multiple of the experts."""
    even: bool = False
    """Everybody gets what its threads are worth, however fast it turned out to be."""

    def place(
        self,
        version: int,
        holders: Sequence[Holder],
        before: Placement | None = None,
        here: Here | None = None,
        held: Mapping[int, U8] | None = None,
    ) -> Placement:
        """The best placement found for these; all are members of it, if only to hold nothing, as `left_out` says.

        `before` is in force; by serial number, `held` (layers, experts) is what holders that are no members of it say
        that they hold from an earlier life of the coordinator, or of their membership.
        """
        known = [replace(holder, pace=None) for holder in holders] if self.even else holders
        holders, here = paced(known), here or Here()
        if held:
            before = self._still_held(holders, before or place(0, self.stock, self.own, ()), held)
        if self.demand is None or self.even:
            return self._by_pace(version, holders, frozenset(), before)
        trial = self._of_few_layers()
        alike, scaled = _alike(holders), _scaled(holders, trial.stock.bytes / max(1, self.stock.bytes))

        def token_s(placement: Placement) -> float:
            return trial.outlook(placement, alike, here).experts_s

        best = self._as_it_is(version, holders, before) or self._evenly(version, holders, before)
        best_s, enough_s = token_s(best), NOTICEABLE_S * len(trial.stock.layers)
        out: frozenset[int] | None = None
        all_s, left_over = np.inf, 0
        for these in _who_may_be_left_out(holders, everybody=here.local is not None):
            this = trial._by_pace(version, scaled, these, before)
            this_s = token_s(this)
            if not these:
                all_s, left_over = this_s, this.left_over(trial.stock)
            elif len(these) < len(holders) and this.left_over(trial.stock) > left_over:
                continue  # somebody is the only one to have something
            if this_s < min(WORTH * best_s, best_s - enough_s):
                out, best_s = these, this_s
        if out is None:
            return best
        placement = self._by_pace(version, holders, out, before)
        return replace(placement, left_out=self._why_left_out(placement, holders, out, all_s, best_s))

    def outlook(self, placement: Placement, holders: Sequence[Holder], here: Here) -> Expected:
        """What a token is expected to take under a placement. ValueError without a demand."""
        if self.demand is None:
            raise ValueError("nobody knows what rows ask for")
        paces = {holder.serial: holder.pace for holder in paced(holders) if holder.pace}
        entry_s = float(np.mean([pace.entry_s for pace in paces.values()])) if paces else 0.0
        local = here.local or Pace(entry_s=entry_s)
        table = Paces.of(paces, local=local, send_s=here.send_s)
        return expected(placement, self.stock, self.demand.rows, table, dense_s=here.dense_s)

    def _by_pace(self, version: int, holders: Sequence[Holder], out: Set[int], before: Placement | None) -> Placement:
        """Everything with those who are not left out; members are all."""
        there = [holder for holder in holders if holder.serial not in out]
        use = None if self.demand is None else self.demand.use
        placement = place(
            version, self.stock, self.own, there, self.rank, use=use, before=before, replicas=self.replicas
        )
        return replace(placement, members=tuple(holder.serial for holder in holders))

    def _still_held(self, holders: Sequence[Holder], before: Placement, held: Mapping[int, U8]) -> Placement:
        """What there would be if nobody were given anything but what it holds already.

        So what several hold is one's, by their paces, and a second copy with another one, if there is to be one; and
        nobody has more than it has room for, whatever it says.
        """
        has = {holder.serial: before.held(holder.serial) for holder in holders} | dict(held)
        keepers = [replace(holder, only=has[holder.serial]) for holder in holders]
        kept = self._by_pace(before.version, keepers, frozenset(), before)
        members = before.members or tuple(serial for serial in kept.members if has[serial].any())
        if self.replicas > 1 and kept.copies < self._by_pace(before.version, holders, frozenset(), kept).copies:
            members = ()  # some second copies are nowhere: it cannot stay as it is
        return replace(kept, members=members)

    def _why_left_out(
        self, placement: Placement, holders: Sequence[Holder], out: Set[int], with_s: float, without_s: float
    ) -> dict[int, str]:
        """By serial number: of those who are left `out`, and of whoever got no expert, slow as it is."""
        layers = len(self._of_few_layers().stock.layers)
        with_ms, without_ms = (f"{1e3 * seconds / layers:.3g} ms" for seconds in (with_s, without_s))
        why = {}
        for holder in holders:
            if holder.serial in out:
                why[holder.serial] = f"a layer takes {with_ms} with it, {without_ms} without"
            elif holder.pace is not None and self._could_hold(holder) and not placement.held(holder.serial).any():
                alone_ms = f"{1e3 * holder.pace.seconds(1):.3g} ms"
                why[holder.serial] = f"one expert takes {alone_ms} there, a whole layer {without_ms} elsewhere"
        return why

    def _could_hold(self, holder: Holder) -> bool:
        """Whether it has the weights of any expert that is not in the coordinator's slots, and the room for it."""
        sizes = np.array(self.stock.slot_bytes)[:, None]
        there = (self.own == 0) & (sizes > 0) & ((holder.room < 0) | (sizes <= holder.room))
        return bool((there if holder.able is None else there & (holder.able > 0)).any())

    def _evenly(self, version: int, holders: Sequence[Holder], before: Placement | None) -> Placement:
        """As if all were as fast as each other."""
        alike = [replace(holder, pace=Pace(entry_s=1.0)) for holder in holders]
        return self._by_pace(version, alike, frozenset(), before).at_pace(version, holders)

    def _as_it_is(self, version: int, holders: Sequence[Holder], before: Placement | None) -> Placement | None:
        """What was there before, at the paces of now; None if others were there, or could hold more."""
        if before is None or before.members != tuple(holder.serial for holder in holders):
            return None
        if before.left_over(self.stock) and len(before.left_out) < len(holders):
            return None
        return before.at_pace(version, holders)

    def _of_few_layers(self) -> Planner:
        """The same for some of the layers, as if the others had no experts."""
        layers = self.stock.layers
        some = set(layers[:: max(1, -(-len(layers) // TRIED_LAYERS))])
        sizes = tuple(size if layer in some else 0 for layer, size in enumerate(self.stock.slot_bytes))
        return replace(self, stock=replace(self.stock, slot_bytes=sizes), own=self.own * _mask(sizes))


def _scaled(holders: Sequence[Holder], part: float) -> list[Holder]:
    """With room for that part of what they have room for."""
    return [holder if holder.room < 0 else replace(holder, room=int(holder.room * part)) for holder in holders]


def _alike(holders: Sequence[Holder]) -> list[Holder]:
    """The same, but those who are not noticeably farther away than the nearest are as near."""
    paces = [holder.pace or Pace(entry_s=0.0) for holder in holders]
    call_s = np.array([pace.call_s for pace in paces])
    near_s = call_s.min(initial=np.inf)
    return [
        replace(holder, pace=replace(pace, call_s=near_s + far_s))
        for holder, pace, far_s in zip(holders, paces, farther_s(call_s).tolist(), strict=True)
    ]


def _mask(sizes: Sequence[int]) -> U8:
    """(layers, 1): 1 for those that have experts."""
    return np.array([[size > 0] for size in sizes], np.uint8)


def _who_may_be_left_out(holders: Sequence[Holder], everybody: bool) -> list[frozenset[int]]:
    """Nobody, then the slowest one, two, three, a quarter, half and so on of them, and, perhaps, everybody."""
    slowest = sorted(holders, key=lambda holder: -(holder.pace or Pace(entry_s=0.0)).seconds(1))
    count = len(slowest)
    counts = {0, 1, 2, 3, count // 4, count // 2, 3 * count // 4, count - 1}
    fitting = sorted(one for one in counts if 0 <= one < count) + [count] * everybody
    return [frozenset(holder.serial for holder in slowest[:one]) for one in fitting]
