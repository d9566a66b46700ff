"""One layer's experts dealt to members as evenly as it can be done, where not everybody can hold everything."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from protocol.messages import I64

NOBODY = -1


def spread(able: NDArray[np.bool_]) -> I64:
    """(experts,): who gets each expert, of those who are `able` (members, experts); NOBODY where none is.

    As even as possible: no chain of hand-overs would take one from somebody to another who has two fewer. Among equals
    the first member is preferred.
    """
    members, experts = able.shape
    owner = np.full(experts, NOBODY, np.int64)
    if not members:
        return owner
    load = np.zeros(members, np.int64)
    for expert in np.argsort(able.sum(axis=0), kind="stable").tolist():  # those with the least choice first
        candidates = np.flatnonzero(able[:, expert])
        if len(candidates):
            owner[expert] = chosen = int(candidates[load[candidates].argmin()])
            load[chosen] += 1
    while _even_out(owner, able, load):
        pass
    return owner


def _even_out(owner: I64, able: NDArray[np.bool_], load: I64) -> bool:
    """Hand one expert on from somebody to another with two fewer, perhaps by way of others; False if nobody can."""
    for start in np.argsort(-load, kind="stable").tolist():
        if load[start] - load.min() < 2:
            return False
        if path := _path(start, owner, able, load):
            for giver, expert, taker in path:
                owner[expert] = taker
                load[giver] -= 1
                load[taker] += 1
            return True
    return False


def _path(start: int, owner: I64, able: NDArray[np.bool_], load: I64) -> list[tuple[int, int, int]]:
    """The shortest way, as (giver, expert, taker) from its end to its beginning; empty if there is none."""
    came: dict[int, tuple[int, int]] = {}
    queue, seen = deque([start]), {start}
    while queue:
        giver = queue.popleft()
        its = np.flatnonzero(owner == giver)
        for taker in np.flatnonzero(able[:, its].any(axis=1)).tolist():
            if taker in seen:
                continue
            came[taker] = giver, int(its[able[taker, its].argmax()])
            if load[start] - load[taker] >= 2:
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
