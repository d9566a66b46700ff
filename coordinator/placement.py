"""Which holder has which expert: a value with a version, never changed, only replaced.

The coordinator's own slots come first: what they hold is settled before the first step (`own_share`). Then members
with room for so many bytes, which are the GPUs of others, and then members that hold any number of experts where these
lie, so that all of them are done with a layer at the same time (`spread.py`): by their paces, by how much each expert
is used, and by who had it before. Who has a share of the model's file is given nothing else, and what nobody can hold
is left to the local bank. Members that compute from the same pages of memory are a team: each holds what any of them
was given, for that costs nothing. Some experts have a second holder (`second_copies.py`). Who of those that have an
expert computes it is decided layer by layer (`plan.py`).
Experts go to whoever has little room by rank, the one that is expected to be used most first (`profile.py`); until uses
were counted the first expert of every layer comes first, then the second, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

import native
from coordinator.able import able_of
from coordinator.pace import Pace, farther_s
from coordinator.plan import DEVICE, LOCAL, NO_RUNNERS, NOBODY_ELSE
from coordinator.profile import F64
from coordinator.second_copies import second_copies
from coordinator.spread import NOBODY, columns_of, spread
from coordinator.swaps import swapped
from protocol.messages import I32, I64, U8
from protocol.pack import Share
from protocol.ranking import in_order
from protocol.stock import Stock

NO_COPIES: I64 = np.empty((0, 0), np.int64)
"""Nobody has an expert of another."""
NANO = 1e9
MAX_PACE_S = 100.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Holder:
    """A member that experts can be given to."""

    serial: int
    room: int
    """Bytes of experts that it can hold; -1: any number of them."""
    memory: int = -1
    """Bytes of experts that its memory has room for, wherever they lie: second copies are to fit; -1: nobody knows."""
    able: U8 | None = None
    """(layers, experts): 1 for those whose weights it has; None if it has all."""
    only: U8 | None = None
    """(layers, experts): 1 for those that it may be given now; None if all that it is able to hold."""
    pages: str = ""
    """Where it computes, equal for those who share that memory; empty if it shares none."""
    threads: int = 1
    pace: Pace | None = None
    """None if nobody knows; then it is taken to be as fast as the others, thread by thread."""

    @property
    def choice(self) -> int:
        """How many experts it has the weights of; more than any number if it has all."""
        return int(np.iinfo(np.int64).max) if self.able is None else int(self.able.sum())

    @property
    def team(self) -> str:
        """What it and others compute from, if each has what any of them has; empty if it is in no team."""
        return self.pages if self.room < 0 and self.able is None else ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """An owner for every (layer, expert): a member's serial number, LOCAL or DEVICE."""

    version: int
    """What Assign and RunExperts name; 0 is the placement that everything starts from."""
    members: tuple[int, ...]
    """Serial numbers of those who were there to hold something, in the order of the rotation."""
    owner: I64
    """(layers, experts); LOCAL throughout in a dense layer, which has no experts."""
    also: I64 = field(default_factory=lambda: NO_COPIES)
    """(layers, experts): who else has it, LOCAL where nobody does; (0, 0) if that is so everywhere."""
    runners: I64 = field(default_factory=lambda: NO_RUNNERS)
    """(members, 4), ascending: serial number of a member, number of its team or -1, nanoseconds that it takes for an
    entry, and by which its calls take longer than others'. Empty if nobody has what another one has."""
    left_out: Mapping[int, str] = field(default_factory=dict)
    """Serial numbers of members that hold nothing since the cluster is faster without them, and what that saves."""

    def held(self, member: int) -> U8:
        """(layers, experts): 1 where the member holds the expert, as Assign carries it."""
        team = self.team(member)
        held: U8 = np.isin(self.owner, team).astype(np.uint8)
        if self.also.size:
            held |= np.isin(self.also, team)
        return held

    def holds(self, member: int, layer: int, experts: I32) -> bool:
        """Whether it holds all of these experts of a layer."""
        team = self.team(member)
        held = np.isin(self.owner[layer, experts], team)
        if self.also.size:
            held |= np.isin(self.also[layer, experts], team)
        return bool(held.all())

    def second(self, layer: int) -> I64:
        """(experts,) of `also`; or empty."""
        return self.also[layer] if self.also.size else NOBODY_ELSE

    def team(self, member: int) -> I64:
        """Serial numbers of its team; its own if it is in none."""
        teams = self.runners[self.runners[:, 0] == member, 1]
        if not len(teams) or teams[0] < 0:
            return np.array([member], np.int64)
        team: I64 = self.runners[self.runners[:, 1] == teams[0], 0]
        return team

    @property
    def copies(self) -> int:
        """How many experts have a second holder."""
        return int((self.also != LOCAL).sum())

    def left_over(self, stock: Stock) -> int:
        """How many experts nobody else holds than the local bank."""
        return int((self.owner[list(stock.layers)] == LOCAL).sum())

    def without(self, member: int) -> Placement:
        """The same placement with one member's experts left to its team, to who else has them, or to the local bank.

        The version stays: what the others hold, and what they have been told, does not change.
        """
        members = tuple(one for one in self.members if one != member)
        team = self.team(member)
        runners = self.runners[self.runners[:, 0] != member]
        heirs = team[team != member]
        if len(heirs):
            owner, also = _left_to(heirs, member, self.owner), _left_to(heirs, member, self.also)
            return replace(self, members=members, runners=runners, owner=owner, also=also)
        return replace(self._giving_up(self.owner == member, self.also == member), members=members, runners=runners)

    def giving_up(self, member: int, wanted: U8) -> Placement:
        """The same placement with those of a member's experts left to who else has them, or else to the local bank,
        that are not `wanted`.

        The version stays, as in `without`.
        """
        given_up = wanted == 0
        return self._giving_up(
            (self.owner == member) & given_up, self.also.size > 0 and (self.also == member) & given_up
        )

    def _giving_up(self, owned: NDArray[np.bool_], second: NDArray[np.bool_] | bool) -> Placement:
        """Some holders and second holders fewer; if the first is gone, the second takes its place."""
        if not self.also.size:
            return replace(self, owner=np.where(owned, np.int64(LOCAL), self.owner))
        also = np.where(second, np.int64(LOCAL), self.also)
        owner = np.where(owned, also, self.owner)
        return replace(self, owner=owner, also=np.where(owned, np.int64(LOCAL), also))

    def at_pace(self, version: int, holders: Sequence[Holder]) -> Placement:
        """The same placement, of its members, by what is known of their paces now."""
        known = _nanoseconds(paced(holders))
        runners = self.runners.copy()
        for row in runners:
            row[2:] = known.get(int(row[0]), row[2:])
        return replace(self, version=version, runners=runners)

    def is_like(self, other: Placement) -> bool:
        """Whether everybody holds the same in both, in whatever version and at whatever pace."""
        return (
            self.members == other.members
            and np.array_equal(self.owner, other.owner)
            and np.array_equal(self._all_also(), other._all_also())
            and np.array_equal(self.runners[:, :2], other.runners[:, :2])
        )

    def _all_also(self) -> I64:
        return self.also if self.also.size else np.full_like(self.owner, LOCAL)


def _left_to(heirs: I64, member: int, table: I64) -> I64:
    """A table of holders with what a member has shared out among its heirs."""
    table, orphaned = table.copy(), table == member
    table[orphaned] = np.resize(heirs, np.count_nonzero(orphaned))
    return table


def own_share(stock: Stock, limit: int, rank: I32 | None = None) -> U8:
    """(layers, experts): 1 for what slots of `limit` bytes are filled with. `rank`: as of `place`."""
    owner = _nobodys(stock)
    _deal(owner, stock, [Holder(serial=DEVICE, room=limit)], rank)
    share: U8 = (owner == DEVICE).astype(np.uint8)
    return share


def place(
    version: int,
    stock: Stock,
    own: U8,
    holders: Sequence[Holder],
    rank: I32 | None = None,
    *,
    use: F64 | None = None,
    before: Placement | None = None,
    replicas: float = 1.0,
) -> Placement:
    """Everything placed: `own` (layers, experts) in the coordinator's slots, the rest with the holders.

    `rank` (layers, experts), each number once, is lower for what is expected to be used more, and `use` (layers,
    experts) is how many entries of one row each gets on average; None: nobody knows. Who had something `before` keeps
    what is its share. `replicas`: copies of all experts together, as a multiple of the experts.
    """
    owner = _nobodys(stock)
    owner[own.astype(np.bool_)] = DEVICE
    holders = paced(holders)
    expected = np.ones(owner.shape) if use is None else use
    _deal(owner, stock, [holder for holder in holders if holder.room >= 0], rank, before)
    _spread(owner, stock, [holder for holder in holders if holder.room < 0], expected, before)
    also = second_copies(owner, stock, holders, expected, replicas, before)
    members = tuple(holder.serial for holder in holders)
    return Placement(
        version=version, members=members, owner=owner, also=also, runners=_runners(holders, shared=also.size > 0)
    )


def paced(holders: Sequence[Holder]) -> list[Holder]:
    """With a pace each: of whom nobody knows it, that of the others, by threads."""
    known = [(holder.pace, max(holder.threads, 1)) for holder in holders if holder.pace is not None]
    if len(known) == len(holders):
        return list(holders)
    thread_s = float(np.mean([pace.entry_s * threads for pace, threads in known])) if known else 1e-3
    call_s = float(np.mean([pace.call_s for pace, _ in known])) if known else 0.0
    return [
        holder
        if holder.pace is not None
        else replace(holder, pace=Pace(entry_s=thread_s / max(holder.threads, 1), call_s=call_s))
        for holder in holders
    ]


def _runners(holders: Sequence[Holder], shared: bool) -> I64:
    """See Placement.runners; `shared`: some experts have a second holder."""
    teams: dict[str, list[int]] = {}
    for holder in holders:
        if holder.team:
            teams.setdefault(holder.team, []).append(holder.serial)
    numbers = {serial: number for number, team in enumerate(teams.values()) if len(team) > 1 for serial in team}
    if not numbers and not shared:
        return NO_RUNNERS
    rows = [(serial, numbers.get(serial, -1), *pace) for serial, pace in _nanoseconds(holders).items()]
    return np.array(sorted(rows), np.int64)


def _nanoseconds(holders: Sequence[Holder]) -> dict[int, tuple[int, int]]:
    """By serial number, as Placement.runners has them."""
    paces = [holder.pace for holder in holders if holder.pace is not None]
    entry_ns = np.clip([NANO * pace.entry_s for pace in paces], 1, NANO * MAX_PACE_S).round().tolist()
    farther_ns = (NANO * np.minimum(farther_s(np.array([pace.call_s for pace in paces])), MAX_PACE_S)).round().tolist()
    pairs = zip(holders, entry_ns, farther_ns, strict=True)
    return {holder.serial: (int(entry), int(farther)) for holder, entry, farther in pairs}


def _nobodys(stock: Stock) -> I64:
    return np.full((len(stock.slot_bytes), stock.experts), LOCAL, np.int64)


def _deal(
    owner: I64, stock: Stock, holders: Sequence[Holder], rank: I32 | None, before: Placement | None = None
) -> None:
    """Give what is LOCAL to holders of limited room, by rank, while any has room.

    Without a rank expert e of layer l goes to (e + l) % n, or to the next one that has room for it: so every layer gets
    its share, and gives every holder work. With one, or where somebody has a share only, to whoever can hold it and was
    given the fewest of the layer, or else has the smaller share: so holders share what a layer uses most. Which of them
    that is does not matter: whoever had it `before` is preferred.
    """
    if not holders:
        return
    left = owner == LOCAL
    left[[not size for size in stock.slot_bytes]] = False  # dense layers have none
    order = in_order(left, rank)
    layers, experts = order.T
    serials, able = _serials(holders), able_of(holders, range(len(stock.slot_bytes)), stock.experts)
    given = native.deal(
        order=order,
        turn=layers.copy() if rank is not None else layers + experts,
        slot_bytes=np.array(stock.slot_bytes, np.int64),
        room=np.array([holder.room for holder in holders], np.int64),
        choice=np.array([holder.choice for holder in holders], np.int64),
        able=able,
        evenly=rank is not None or any(holder.able is not None for holder in holders),
    )
    dealt = np.full_like(owner, NOBODY)
    dealt[layers, experts] = given
    if before is not None:
        dealt = swapped(dealt, columns_of(before.owner, serials), able)
    taken = dealt != NOBODY
    owner[taken] = serials[dealt[taken]]


def share_of(stock: Stock, share: Share) -> U8:
    """(layers, experts): 1 for what a member gets if there are `share.count` without limits, and nobody else."""
    holders = [Holder(serial=number, room=-1) for number in range(1, share.count + 1)]
    return place(0, stock, stock.nothing(), holders).held(share.number)


def _spread(owner: I64, stock: Stock, members: Sequence[Holder], use: F64, before: Placement | None) -> None:
    """Give all that is LOCAL to members that can hold any number, as of `spread`.

    Among equals the first to be preferred is another one in each layer: so those who hold one expert more are, too.
    """
    if not members:
        return
    serials, layers = _serials(members), list(stock.layers)
    left = owner[layers] == LOCAL
    given = spread(
        able_of(members, layers, stock.experts),
        use[layers],
        np.array([member.pace.entry_s for member in members if member.pace], np.float64),
        farther_s(np.array([member.pace.call_s for member in members if member.pace], np.float64)),
        left=left,
        before=None if before is None else columns_of(before.owner[layers], serials),
        first=np.array(layers, np.int64) % len(members),
    )
    owner[layers] = np.where(given == NOBODY, owner[layers], serials[given])


def _serials(holders: Sequence[Holder]) -> I64:
    return np.array([holder.serial for holder in holders], np.int64)
