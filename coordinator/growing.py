"""Placements that are come to by way of another one, where some have no room for what they hold beside what they are to
hold, and the coordinator has no bank of its own: so that no expert is ever without a holder that had one. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from coordinator.placement import Placement
from coordinator.plan import LOCAL
from protocol.stock import Stock


def on_the_way(wanted: Placement, active: Placement, stock: Stock, rooms: Mapping[int, int]) -> Placement:
    """`wanted` itself, or what is to come before it: newcomers take their part, and whoever computes keeps its own.

    `rooms` has the bytes of experts that each member can hold, -1: any number of them; of those who are leaving, too,
    who stay if nobody has room for what they have. The first of the two if nobody has to give up, before the new
    placement is in force, what no other member of the one in force has.
    """
    if not any(_gives_up_the_last(member, wanted, active, stock, rooms[member]) for member in active.members):
        return wanted
    newcomers = [member for member in wanted.members if member not in active.members]
    leaving = [member for member in active.members if member not in wanted.members]
    owner = active.owner.copy()
    for member in wanted.members:
        if member not in newcomers:
            more = np.isin(active.owner, [LOCAL, *leaving]) & (wanted.owner == member)
            together = stock.bytes_of(((owner == member) | more).astype(np.uint8))
            if not 0 <= rooms[member] < together:  # all of it or nothing: they come to the rest when this is in force
                owner[more] = member
    theirs = np.isin(wanted.owner, newcomers)
    owner[theirs] = wanted.owner[theirs]
    staying = [member for member in leaving if (owner == member).any()]
    return replace(wanted, members=(*wanted.members, *staying), owner=owner, also=wanted.also[:0, :0])


def _gives_up_the_last(member: int, wanted: Placement, active: Placement, stock: Stock, room: int) -> bool:
    before, after = active.held(member), wanted.held(member)
    if room < 0 or stock.bytes_of(before | after) <= room:
        return False
    alone = active.giving_up(member, after)
    return bool(((alone.owner == LOCAL) & (active.owner != LOCAL)).any())
