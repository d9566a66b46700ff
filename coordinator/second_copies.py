"""Who else gets the experts that are used most, where there is memory to spare: so each layer's work can be shared out
by what came, and a lost member's work has somebody who can go on with it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from coordinator.pace import Pace
from coordinator.plan import LOCAL
from coordinator.profile import F64
from protocol.messages import I64
from protocol.stock import Stock


class _Holder(Protocol):
    """What is used of coordinator.placement.Holder."""

    @property
    def serial(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def team(self) -> str: ...
    @property
    def pace(self) -> Pace | None: ...
    def can_hold(self, layer: int, expert: int) -> bool: ...


class _Before(Protocol):
    """What is used of coordinator.placement.Placement."""

    @property
    def also(self) -> I64: ...


def second_copies(
    owner: I64, stock: Stock, holders: Sequence[_Holder], use: F64, replicas: float, before: _Before | None
) -> I64:
    """(layers, experts): who else gets an expert of `owner` (layers, experts), LOCAL where nobody does; (0, 0) if none.

    So many that all copies together are `replicas` times the experts, those with the most `use` first. One goes to
    whoever is done with the layer first, is of another team than the owner, and has the weights, and the room; who had
    it `before` keeps it if it has not more of them than others.
    """
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
            and (holder.room < 0 or room[column] >= size)
            and holder.can_hold(layer, expert)
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


def _room_left(owner: I64, stock: Stock, holders: Sequence[_Holder]) -> list[int]:
    sizes = np.array(stock.slot_bytes, np.int64)
    return [holder.room - int((owner == holder.serial).sum(axis=1) @ sizes) for holder in holders]


def _busy(owner: I64, at: dict[int, int], use: F64, holders: Sequence[_Holder]) -> list[list[float]]:
    """(layers, holders): when each is done with what it owns of a layer, on average."""
    busy = np.zeros((len(owner), len(holders)))
    for serial, column in at.items():
        pace = holders[column].pace
        calls_s = 0.0 if pace is None else pace.call_s
        busy[:, column] = calls_s + (use * (owner == serial)).sum(axis=1) * _entry_s(holders[column])
    table: list[list[float]] = busy.tolist()
    return table


def _entry_s(holder: _Holder) -> float:
    return 1.0 if holder.pace is None else holder.pace.entry_s
