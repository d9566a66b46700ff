"""Which holder has which expert: a value with a version, never changed, only replaced.

The coordinator's own slots come first: what they hold is settled before the first step (`own_share`). Then members
with room for so many bytes, which are the GPUs of others, and then members that hold any number of experts where these
lie. What nobody has room for is left to the local bank. Experts go to whoever has little room by rank, the one that is
expected to be used most first; until uses are counted the rank is the expert's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coordinator.plan import DEVICE, LOCAL
from protocol.messages import I64, U8
from protocol.stock import Stock


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A member that experts can be given to."""

    serial: int
    room: int
    """Bytes of experts that it can hold; -1: any number of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """An owner for every (layer, expert): a member's serial number, LOCAL or DEVICE."""

    version: int
    """What Assign and RunExperts name; 0 is the placement that everything starts from."""
    members: tuple[int, ...]
    """Serial numbers of those who were there to hold something, in the order of the rotation."""
    owner: I64
    """(layers, experts); LOCAL throughout in a dense layer, which has no experts."""

    def held(self, member: int) -> U8:
        """(layers, experts): 1 where the member holds the expert, as Assign carries it."""
        held: U8 = (self.owner == member).astype(np.uint8)
        return held

    def without(self, member: int) -> Placement:
        """The same placement with one member's experts left to the local bank.

        The version stays: what the others hold, and what they have been told, does not change.
        """
        members = tuple(one for one in self.members if one != member)
        owner = np.where(self.owner == member, np.int64(LOCAL), self.owner)
        return replace(self, members=members, owner=owner)

    def giving_up(self, member: int, wanted: U8) -> Placement:
        """The same placement with those of a member's experts left to the local bank that are not `wanted`.

        The version stays, as in `without`.
        """
        owner = np.where((self.owner == member) & (wanted == 0), np.int64(LOCAL), self.owner)
        return replace(self, owner=owner)

    def is_like(self, other: Placement) -> bool:
        """Whether everybody holds the same in both, in whatever version."""
        return self.members == other.members and np.array_equal(self.owner, other.owner)


def own_share(stock: Stock, limit: int) -> U8:
    """(layers, experts): 1 for what slots of `limit` bytes are filled with."""
    owner = _nobodys(stock)
    _deal(owner, stock, [Holder(serial=DEVICE, room=limit)])
    share: U8 = (owner == DEVICE).astype(np.uint8)
    return share


def place(version: int, stock: Stock, own: U8, holders: Sequence[Holder]) -> Placement:
    """Everything placed: `own` (layers, experts) in the coordinator's slots, the rest with the holders."""
    owner = _nobodys(stock)
    owner[own.astype(np.bool_)] = DEVICE
    _deal(owner, stock, [holder for holder in holders if holder.room >= 0])
    _spread(owner, stock, [holder.serial for holder in holders if holder.room < 0])
    return Placement(version=version, members=tuple(holder.serial for holder in holders), owner=owner)


def _nobodys(stock: Stock) -> I64:
    return np.full((len(stock.slot_bytes), stock.experts), LOCAL, np.int64)


def _deal(owner: I64, stock: Stock, holders: Sequence[Holder]) -> None:
    """Give what is LOCAL to holders of limited room, by rank, while any has room: expert e of layer l to (e + l) % n.

    Or to the next one that has room for it. So every layer gets its share, and gives every holder work.
    """
    room = [holder.room for holder in holders]
    smallest = min(size for size in stock.slot_bytes if size)
    layers = np.array(stock.layers)
    for expert, index in np.argwhere(owner[layers].T == LOCAL).tolist():  # the first of every layer, then the second
        if max(room, default=-1) < smallest:
            return
        layer = int(layers[index])
        size = stock.slot_bytes[layer]
        turns = ((expert + layer + turn) % len(holders) for turn in range(len(holders)))
        chosen = next((turn for turn in turns if room[turn] >= size), None)
        if chosen is not None:
            room[chosen] -= size
            owner[layer, expert] = holders[chosen].serial


def _spread(owner: I64, stock: Stock, members: Sequence[int]) -> None:
    """Give all that is LOCAL to members that can hold any number, evenly: the i-th of layer l to (i + l) % n.

    So every layer gives every member work, and those who hold one expert more are others in the next layer.
    """
    if not members:
        return
    serials = np.asarray(members, np.int64)
    for layer in stock.layers:
        left = np.flatnonzero(owner[layer] == LOCAL)
        owner[layer, left] = serials[(np.arange(len(left)) + layer) % len(members)]
