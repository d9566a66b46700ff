"""Who else gets the experts that are used most, where there is memory to spare: so each layer's work can be shared out
by what came, and a lost member's work has somebody who can go on with it. Pure.

Who takes what is native code (`native/src/second_copies.cpp`), as of `spread.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

import native
from coordinator.able import able_of
from coordinator.pace import Pace
from coordinator.plan import LOCAL
from coordinator.profile import F64
from coordinator.spread import columns_of
from protocol.messages import I64, U8
from protocol.stock import Stock


class _Holder(Protocol):
    """What is used of coordinator.placement.Holder."""

    @property
    def serial(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def able(self) -> U8 | None: ...
    @property
    def only(self) -> U8 | None: ...
    @property
    def team(self) -> str: ...
    @property
    def pace(self) -> Pace | None: ...


class _Before(Protocol):
    """What is used of coordinator.placement.Placement."""

    @property
    def also(self) -> I64: ...


def second_copies(
    owner: I64, stock: Stock, holders: Sequence[_Holder], use: F64, replicas: float, before: _Before | None
) -> I64:
    """(layers, experts): who else gets an expert of `owner` (layers, experts), LOCAL where nobody does; (0, 0) if none.

    So many that all copies together are `replicas` times the experts, those with the most `use` first. One goes to
    whoever is done with the layer first, is of another team than the owner, and has the weights, and room for it in
    memory; who had it `before` keeps it if it has not more of them than others. ValueError if an owner is not among the
    holders.
    """
    none: I64 = np.empty((0, 0), np.int64)
    count = round((replicas - 1.0) * stock.experts * len(stock.layers))
    if count <= 0 or len(holders) < 2:
        return none
    layers = list(stock.layers)
    serials = np.array([holder.serial for holder in holders], np.int64)
    entry_s = np.array([1.0 if holder.pace is None else holder.pace.entry_s for holder in holders], np.float64)
    call_s = np.array([0.0 if holder.pace is None else holder.pace.call_s for holder in holders], np.float64)
    also = np.full_like(owner, LOCAL)
    also[layers] = native.second_copies(
        owner=owner[layers],
        before=none if before is None or not before.also.size else before.also[layers],
        serials=serials,
        team=_teams(holders),
        room=_room_left(owner, stock, holders),
        slot_bytes=np.array(stock.slot_bytes, np.int64)[layers],
        entry_s=entry_s,
        able=able_of(holders, layers, stock.experts),
        use=use[layers],
        busy_s=call_s + _use_of_each(columns_of(owner[layers], serials), use[layers], len(holders)) * entry_s,
        first=np.array(layers, np.int64) % len(holders),
        count=count,
    )
    return also if (also != LOCAL).any() else none


def _teams(holders: Sequence[_Holder]) -> I64:
    """(holders,): the number of each one's team; -1 if it is in none."""
    numbers = {"": -1}
    return np.array([numbers.setdefault(holder.team, len(numbers)) for holder in holders], np.int64)


def _room_left(owner: I64, stock: Stock, holders: Sequence[_Holder]) -> I64:
    """(holders,): bytes that each has left; -1: any number of them.

    Of who may hold any number, those that its memory has left: a copy that has to be read from a disk helps nobody.
    """
    rooms = [one.memory if one.room < 0 else one.room for one in holders]
    left = [
        -1 if room < 0 else max(0, room - stock.bytes_of(owner == one.serial))
        for one, room in zip(holders, rooms, strict=True)
    ]
    return np.array(left, np.int64)


def _use_of_each(column: I64, use: F64, holders: int) -> F64:
    """(layers, holders): what each owns of a layer, by use; `column` (layers, experts): who owns it, or -1."""
    found, every = np.zeros((len(column), holders)), np.arange(use.shape[1])
    table = np.zeros((holders + 1, use.shape[1]))  # of one layer; the last row is nobody's
    for of_layer, its_column, its_use in zip(found, column, use, strict=True):
        table[its_column, every] = its_use
        table[:-1].sum(axis=1, out=of_layer)
        table[its_column, every] = 0.0
    return found
