"""How experts are dealt out, in plain Python and NumPy: what the native code must agree with, bit by bit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coordinator.pace import Paces
from coordinator.placement import Holder, Placement
from coordinator.plan import LOCAL
from coordinator.profile import F64
from coordinator.spread import NOBODY
from protocol.messages import I32, I64, U8
from protocol.ranking import by_rank
from protocol.stock import Stock

CLOSE = 1e-9
"""Times that differ by less, relative to the larger one, are the same: they are sums of the same numbers."""


@dataclass(slots=True, kw_only=True, eq=False)
class Crew:
    """Who a layer is dealt to, and what each has of it so far."""

    able: NDArray[np.bool_]
    """(members, experts): whose weights each has."""
    use: F64
    """(experts,): entries of one row that each expert is expected to get."""
    entry_s: F64
    """(members,): as of Pace."""
    call_s: F64
    """(members,): the same."""
    load: F64 = field(init=False)
    """(members,): entries of one row that each is expected to get."""

    def __post_init__(self) -> None:
        self.load = np.zeros(len(self.able))

    def done_s(self, more: float = 0.0) -> F64:
        """(members,): when each would be done with so many entries more than it has."""
        done: F64 = self.call_s + (self.load + more) * self.entry_s
        return done

    def hand(self, expert: int, giver: int, taker: int) -> None:
        """An expert goes from one to another; NOBODY is none of them."""
        if giver != NOBODY:
            self.load[giver] -= self.use[expert]
        if taker != NOBODY:
            self.load[taker] += self.use[expert]


def spread(able: NDArray[np.bool_], crew: Crew | None = None, before: I64 | None = None) -> I64:
    """(experts,): who gets each expert, of those who are `able` (members, experts); NOBODY where none is.

    Whoever had an expert `before` (experts,; or NOBODY) keeps it as far as that is its share; the rest goes to whoever
    would be done first. No chain of hand-overs would then have the last one done sooner. Among equals the one who had
    it before is preferred, then the first member. Without a crew all experts and members are alike.
    """
    members, experts = able.shape
    owner = np.full(experts, NOBODY, np.int64)
    if not members:
        return owner
    crew = crew or Crew(able=able, use=np.ones(experts), entry_s=np.ones(members), call_s=np.zeros(members))
    before = owner.copy() if before is None else before
    _keep(owner, before, crew)
    left = np.flatnonzero(owner == NOBODY)
    order = np.lexsort((before[left] == NOBODY, -crew.use[left], able[:, left].sum(axis=0)))  # the least choice first
    for expert in left[order].tolist():
        taker = _first_done(crew, expert, int(before[expert]))
        owner[expert] = taker
        crew.hand(expert, NOBODY, taker)
    if not able.all():
        for _ in range(4 * experts):
            if not _even_out(owner, crew):
                break
    return owner


def fair_shares(total: float, entry_s: F64, call_s: F64) -> F64:
    """(members,): `total` entries, so that all who get any are done at the same time, and others would be later."""
    slowness = np.maximum(entry_s, 1e-12)
    order = np.argsort(call_s, kind="stable")
    speed = np.add.accumulate(1 / slowness[order])
    done = (total + np.add.accumulate(call_s[order] / slowness[order])) / speed  # if so many of them share
    fits = np.flatnonzero(done >= call_s[order])
    last_s = done[fits[-1]] if len(fits) else call_s.min()  # rounding may leave none
    shares: F64 = np.maximum(last_s - call_s, 0.0) / slowness
    return shares


def _keep(owner: I64, before: I64, crew: Crew) -> None:
    """Everybody keeps of what it had as much as is its share, the ones used most first."""
    there = np.flatnonzero(before != NOBODY)
    if not len(there):
        return
    had = there[crew.able[before[there], there]]
    shares = fair_shares(float(crew.use.sum()), crew.entry_s, crew.call_s)
    for expert in had[np.argsort(-crew.use[had], kind="stable")].tolist():
        member = int(before[expert])
        if crew.load[member] + crew.use[expert] <= shares[member] * (1 + CLOSE):
            owner[expert] = member
            crew.hand(expert, NOBODY, member)


def _first_done(crew: Crew, expert: int, before: int) -> int:
    """Who of those who are able would be done with one more first; NOBODY if none is."""
    able = crew.able[:, expert]
    done = np.where(able, crew.done_s(float(crew.use[expert])), np.inf)
    first = int(done.argmin())
    if not able[first]:
        return NOBODY
    return before if before != NOBODY and done[before] <= done[first] * (1 + CLOSE) else first


def _even_out(owner: I64, crew: Crew) -> bool:
    """Hand one expert on from somebody to another who is then done sooner, perhaps by way of others; False if none."""
    done, least = np.where(crew.load > 0, crew.done_s(), 0.0), float(crew.use.min())
    for start in np.argsort(-done, kind="stable").tolist():
        if crew.done_s(least).min() >= done[start] * (1 - CLOSE):
            return False
        path = _path(start, owner, crew)
        if path and _is_sooner(path, float(done[start]), crew):
            for giver, expert, taker in path:
                owner[expert] = taker
                crew.hand(expert, giver, taker)
            return True
    return False


def _is_sooner(path: list[tuple[int, int, int]], done_s: float, crew: Crew) -> bool:
    """Whether everybody on a path would be done before `done_s`."""
    load = crew.load.copy()
    for giver, expert, taker in path:
        load[giver] -= crew.use[expert]
        load[taker] += crew.use[expert]
    all_done: F64 = crew.call_s + load * crew.entry_s
    return all(all_done[member] < done_s * (1 - CLOSE) for giver, _, taker in path for member in (giver, taker))


def _path(start: int, owner: I64, crew: Crew) -> list[tuple[int, int, int]]:
    """The shortest way, as (giver, expert, taker) from its end to its beginning; empty if there is none."""
    came: dict[int, tuple[int, int]] = {}
    queue, seen = deque([start]), {start}
    latest = float(crew.done_s()[start])
    while queue:
        giver = queue.popleft()
        its = np.flatnonzero(owner == giver)
        for taker in np.flatnonzero(crew.able[:, its].any(axis=1)).tolist():
            if taker in seen:
                continue
            expert = int(its[crew.able[taker, its].argmax()])
            came[taker] = giver, expert
            if crew.done_s(float(crew.use[expert]))[taker] < latest * (1 - CLOSE):
                return _walked(taker, start, came)
            seen.add(taker)
            queue.append(taker)
    return []


def _walked(end: int, start: int, came: dict[int, tuple[int, int]]) -> list[tuple[int, int, int]]:
    path = []
    while end != start:
        giver, expert = came[end]
        path.append((giver, expert, end))
        end = giver
    return path


def can_hold(holder: Holder, layer: int, expert: int) -> bool:
    """Whether it has the weights, and may be given it; room is another question."""
    return all(bool(table[layer, expert]) for table in (holder.able, holder.only) if table is not None)


def choice(holder: Holder) -> float:
    """How many experts it has the weights of."""
    return np.inf if holder.able is None else int(holder.able.sum())


def deal(owner: I64, stock: Stock, holders: Sequence[Holder], rank: I32 | None) -> None:
    """Give what is LOCAL to holders of limited room, by rank, while any has room."""
    if not holders:
        return
    evenly = rank is not None or any(holder.able is not None for holder in holders)
    given = [[0] * len(holders) for _ in stock.slot_bytes]
    room = [holder.room for holder in holders]
    smallest = min(size for size in stock.slot_bytes if size)
    left = owner == LOCAL
    left[[not size for size in stock.slot_bytes]] = False  # dense layers have none
    for layer, expert in by_rank(left, rank):
        if max(room) < smallest:
            return
        size = stock.slot_bytes[layer]
        first = layer if rank is not None else expert + layer
        turns = ((first + turn) % len(holders) for turn in range(len(holders)))
        able = [turn for turn in turns if room[turn] >= size and can_hold(holders[turn], layer, expert)]
        if able:
            chosen = min(able, key=lambda turn: (given[layer][turn], choice(holders[turn]))) if evenly else able[0]
            given[layer][chosen] += 1
            room[chosen] -= size
            owner[layer, expert] = holders[chosen].serial


def second_copies(
    owner: I64, stock: Stock, holders: Sequence[Holder], use: F64, replicas: float, before: Placement | None
) -> I64:
    """As of coordinator.second_copies."""
    also = np.full_like(owner, LOCAL)
    count = round((replicas - 1.0) * stock.experts * len(stock.layers))
    if count <= 0 or len(holders) < 2:
        return also[:0, :0]
    at = {holder.serial: column for column, holder in enumerate(holders)}
    room = _room_left(owner, stock, holders)
    busy_s = _busy(owner, at, use, holders)
    pairs = np.argwhere(owner >= 0)
    pairs = pairs[np.argsort(-use[pairs[:, 0], pairs[:, 1]], kind="stable")]
    for layer, expert in pairs.tolist():
        if count == 0:
            break
        first = at[int(owner[layer, expert])]
        had = -1 if before is None or not before.also.size else at.get(int(before.also[layer, expert]), -1)
        size = stock.slot_bytes[layer]
        able = [
            column
            for column, holder in enumerate(holders)
            if column != first
            and not (holder.team and holder.team == holders[first].team)
            and (_kept(holder) < 0 or room[column] >= size)
            and can_hold(holder, layer, expert)
        ]
        if not able:
            continue
        share = float(use[layer, expert]) / 2
        taker = min(able, key=lambda column: (busy_s[layer][column], column != had, (column - layer) % len(holders)))
        if had in able and busy_s[layer][had] <= busy_s[layer][taker] + share * _entry_s(holders[had]):
            taker = had
        busy_s[layer][first] -= share * _entry_s(holders[first])
        busy_s[layer][taker] += share * _entry_s(holders[taker])
        also[layer, expert] = holders[taker].serial
        room[taker] -= size
        count -= 1
    return also if (also != LOCAL).any() else also[:0, :0]


def _room_left(owner: I64, stock: Stock, holders: Sequence[Holder]) -> list[int]:
    sizes = np.array(stock.slot_bytes, np.int64)
    return [_kept(holder) - int((owner == holder.serial).sum(axis=1) @ sizes) for holder in holders]


def _kept(holder: Holder) -> int:
    return holder.memory if holder.room < 0 else holder.room


def _busy(owner: I64, at: dict[int, int], use: F64, holders: Sequence[Holder]) -> list[list[float]]:
    """(layers, holders): when each is done with what it owns of a layer, on average."""
    busy = np.zeros((len(owner), len(holders)))
    for serial, column in at.items():
        pace = holders[column].pace
        calls_s = 0.0 if pace is None else pace.call_s
        busy[:, column] = calls_s + (use * (owner == serial)).sum(axis=1) * _entry_s(holders[column])
    table: list[list[float]] = busy.tolist()
    return table


def _entry_s(holder: Holder) -> float:
    return 1.0 if holder.pace is None else holder.pace.entry_s


def shared_out(ids: I32, able: NDArray[np.bool_], paces: Paces) -> I64:
    """As of coordinator.cost."""
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
    """As of coordinator.cost."""
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


def swapped(owner: I64, before: I64, able: U8) -> I64:
    """As of coordinator.swaps."""
    owner, swaps = owner.copy(), 1
    while swaps:
        swaps = 0
        away = (owner != NOBODY) & (before != NOBODY) & (owner != before)
        for layer, expert in np.argwhere(away).tolist():
            its, had = owner[layer], before[layer]
            here, there = int(its[expert]), int(had[expert])
            if here == there or not able[layer, expert, there]:
                continue
            others = np.flatnonzero((its == there) & (had != there) & (able[layer, :, here] > 0))
            if len(others):
                other = others[np.argmax(had[others] == here)]  # one that belongs here, if there is any
                its[expert], its[other] = there, here
                swaps += 1
    return owner
