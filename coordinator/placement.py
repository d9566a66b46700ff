"""Which member holds which expert: a value with a version, never changed, only replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coordinator.plan import LOCAL
from protocol.messages import I64, U8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """An owner for every (layer, expert): a member's serial number, or LOCAL."""

    version: int
    """What Assign and RunExperts name; 0 is the empty placement everything starts from."""
    members: tuple[int, ...]
    """Serial numbers of those who hold something, in the order of the rotation."""
    owner: I64
    """(layers, experts); LOCAL throughout in a dense layer, which has no experts."""
    dense_layers: int = 0
    """How many of the first layers are dense."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to the local bank."""
        return not (self.owner[self.dense_layers :] == LOCAL).any()

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


def empty(layers: int, experts: int, dense_layers: int = 0) -> Placement:
    """Nobody holds anything: the local bank computes all of it."""
    owner = np.full((layers, experts), LOCAL, np.int64)
    return Placement(version=0, members=(), owner=owner, dense_layers=dense_layers)


def spread(version: int, layers: int, experts: int, members: Sequence[int], dense_layers: int = 0) -> Placement:
    """Deal each layer's experts evenly: expert e of layer l to member (e + l) % n.

    So every layer gives every member work, and those who hold one expert more are others in the next layer.
    """
    if not members:
        return replace(empty(layers, experts, dense_layers), version=version)
    turn = np.add.outer(np.arange(layers), np.arange(experts)) % len(members)
    owner = np.asarray(members, np.int64)[turn]
    owner[:dense_layers] = LOCAL
    return Placement(version=version, members=tuple(members), owner=owner, dense_layers=dense_layers)
