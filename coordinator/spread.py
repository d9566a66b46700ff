"""One layer's experts dealt to members so that all are done at the same time, as nearly as it can be done. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coordinator.profile import F64
from protocol.messages import I64

NOBODY = -1
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
    shares: F64 = np.maximum(done[fits[-1]] - call_s, 0.0) / slowness
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
