"""Which holder has which expert: a value with a version, never changed, only replaced.

The coordinator's own slots come first: what they hold is settled before the first step (`own_share`). Then members
with room for so many bytes, which are the GPUs of others, and then members that hold any number of experts where these
lie. Who has a share of the model's file is given nothing else, and what nobody can hold is left to the local bank.
Members that compute from the same pages of memory are a team: each holds what any of them was given, for that costs
nothing, and who of them computes an expert is decided layer by layer (`plan.py`).
Experts go to whoever has little room by rank, the one that is expected to be used most first (`profile.py`); until uses
were counted the first expert of every layer comes first, then the second, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from coordinator.plan import DEVICE, LOCAL, NO_MATES
from coordinator.spread import NOBODY, spread
from protocol.messages import I32, I64, U8
from protocol.pack import Share
from protocol.ranking import by_rank
from protocol.stock import Stock


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Holder:
    """A member that experts can be given to."""

    serial: int
    room: int
    """Bytes of experts that it can hold; -1: any number of them."""
    able: U8 | None = None
    """(layers, experts): 1 for those whose weights it has; None if it has all."""
    pages: str = ""
    """Where it computes, equal for those who share that memory; empty if it shares none."""
    threads: int = 1

    @property
    def experts(self) -> float:
        """How many it has the weights of."""
        return np.inf if self.able is None else int(self.able.sum())

    def can_hold(self, layer: int, expert: int) -> bool:
        """Whether it has the weights; room is another question."""
        return self.able is None or bool(self.able[layer, expert])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """An owner for every (layer, expert): a member's serial number, LOCAL or DEVICE."""

    version: int
    """What Assign and RunExperts name; 0 is the placement that everything starts from."""
    members: tuple[int, ...]
    """Serial numbers of those who were there to hold something, in the order of the rotation."""
    owner: I64
    """(layers, experts); LOCAL throughout in a dense layer, which has no experts."""
    mates: I64 = field(default_factory=lambda: NO_MATES)
    """(members of teams, 3): number of the team, serial number of the member, its threads."""

    def held(self, member: int) -> U8:
        """(layers, experts): 1 where the member holds the expert, as Assign carries it."""
        held: U8 = np.isin(self.owner, self._team(member)).astype(np.uint8)
        return held

    def holds(self, member: int, layer: int, experts: I32) -> bool:
        """Whether it holds all of these experts of a layer."""
        return bool(np.isin(self.owner[layer, experts], self._team(member)).all())

    def _team(self, member: int) -> I64:
        """Serial numbers of its team; its own if it is in none."""
        teams = self.mates[self.mates[:, 1] == member, 0]
        return self.mates[self.mates[:, 0] == teams[0], 1] if len(teams) else np.array([member], np.int64)

    def left_over(self, stock: Stock) -> int:
        """How many experts nobody else holds than the local bank."""
        return int((self.owner[list(stock.layers)] == LOCAL).sum())

    def without(self, member: int) -> Placement:
        """The same placement with one member's experts left to its team, or else to the local bank.

        The version stays: what the others hold, and what they have been told, does not change.
        """
        members = tuple(one for one in self.members if one != member)
        team = self._team(member)
        heirs = team[team != member] if len(team) > 1 else np.array([LOCAL])
        owner, orphaned = self.owner.copy(), self.owner == member
        owner[orphaned] = np.resize(heirs, np.count_nonzero(orphaned))
        return replace(self, members=members, owner=owner, mates=self.mates[self.mates[:, 1] != member])

    def giving_up(self, member: int, wanted: U8) -> Placement:
        """The same placement with those of a member's experts left to the local bank that are not `wanted`.

        The version stays, as in `without`.
        """
        owner = np.where((self.owner == member) & (wanted == 0), np.int64(LOCAL), self.owner)
        return replace(self, owner=owner)

    def is_like(self, other: Placement) -> bool:
        """Whether everybody holds the same in both, in whatever version."""
        return (
            self.members == other.members
            and np.array_equal(self.owner, other.owner)
            and np.array_equal(self.mates, other.mates)
        )


def own_share(stock: Stock, limit: int, rank: I32 | None = None) -> U8:
    """(layers, experts): 1 for what slots of `limit` bytes are filled with. `rank`: as of `place`."""
    owner = _nobodys(stock)
    _deal(owner, stock, [Holder(serial=DEVICE, room=limit)], rank)
    share: U8 = (owner == DEVICE).astype(np.uint8)
    return share


def place(version: int, stock: Stock, own: U8, holders: Sequence[Holder], rank: I32 | None = None) -> Placement:
    """Everything placed: `own` (layers, experts) in the coordinator's slots, the rest with the holders.

    `rank` (layers, experts), each number once, is lower for what is expected to be used more; None: nobody knows.
    """
    owner = _nobodys(stock)
    owner[own.astype(np.bool_)] = DEVICE
    _deal(owner, stock, [holder for holder in holders if holder.room >= 0], rank)
    _spread(owner, stock, [holder for holder in holders if holder.room < 0])
    members = tuple(holder.serial for holder in holders)
    return Placement(version=version, members=members, owner=owner, mates=_mates(holders))


def _mates(holders: Sequence[Holder]) -> I64:
    """Who holds any number of any experts where they lie, and is not alone with these pages: see Placement.mates."""
    teams: dict[str, list[Holder]] = {}
    for holder in holders:
        if holder.room < 0 and holder.able is None and holder.pages:
            teams.setdefault(holder.pages, []).append(holder)
    rows = [
        (number, mate.serial, max(mate.threads, 1))
        for number, team in enumerate(teams.values())
        if len(team) > 1
        for mate in team
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def _nobodys(stock: Stock) -> I64:
    return np.full((len(stock.slot_bytes), stock.experts), LOCAL, np.int64)


def _deal(owner: I64, stock: Stock, holders: Sequence[Holder], rank: I32 | None) -> None:
    """Give what is LOCAL to holders of limited room, by rank, while any has room.

    Without a rank expert e of layer l goes to (e + l) % n, or to the next one that has room for it: so every layer gets
    its share, and gives every holder work. With one, or where somebody has a share only, to whoever can hold it and was
    given the fewest of the layer, or else has the smaller share: so holders share what a layer uses most.
    """
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
        able = [turn for turn in turns if room[turn] >= size and holders[turn].can_hold(layer, expert)]
        if able:
            chosen = min(able, key=lambda turn: (given[layer][turn], holders[turn].experts)) if evenly else able[0]
            given[layer][chosen] += 1
            room[chosen] -= size
            owner[layer, expert] = holders[chosen].serial


def share_of(stock: Stock, share: Share) -> U8:
    """(layers, experts): 1 for what a member gets if there are `share.count` without limits, and nobody else."""
    holders = [Holder(serial=number, room=-1) for number in range(1, share.count + 1)]
    return place(0, stock, np.zeros((len(stock.slot_bytes), stock.experts), np.uint8), holders).held(share.number)


def _spread(owner: I64, stock: Stock, members: Sequence[Holder]) -> None:
    """Give all that is LOCAL to members that can hold any number, evenly: the i-th of layer l to (i + l) % n.

    So every layer gives every member work, and those who hold one expert more are others in the next layer. Where
    somebody has a share only, as evenly as that can be done (`spread`).
    """
    if not members:
        return
    serials = np.asarray([member.serial for member in members], np.int64)
    partly = any(member.able is not None for member in members)
    for layer in stock.layers:
        left = np.flatnonzero(owner[layer] == LOCAL)
        if not partly:
            owner[layer, left] = serials[(np.arange(len(left)) + layer) % len(members)]
            continue
        turned = [members[(turn + layer) % len(members)] for turn in range(len(members))]
        able = np.array([_can(member, layer, left) for member in turned], np.bool_).reshape(len(turned), len(left))
        given = spread(able)
        owners = np.asarray([member.serial for member in turned], np.int64)
        owner[layer, left] = np.where(given == NOBODY, np.int64(LOCAL), owners[given])


def _can(member: Holder, layer: int, experts: NDArray[np.intp]) -> NDArray[np.bool_]:
    """(experts,): those whose weights it has."""
    return np.ones(len(experts), np.bool_) if member.able is None else member.able[layer, experts].astype(np.bool_)
