"""Peers keep what they had, as far as others do not: rank decides what has slots, not whose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.placement import Holder, Placement, place
from coordinator.plan import LOCAL
from coordinator.spread import NOBODY
from coordinator.swaps import swapped
from protocol.messages import I32
from protocol.stock import Stock

SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 4))


@given(SHAPES, st.integers(0, 2**32))
@example((2, 9, 4), 8388607)  # where one swap makes another one possible
def test_counts_stay_and_so_does_who_stayed(shape: tuple[int, int, int], seed: int) -> None:
    layers, experts, holders = shape
    rng = np.random.default_rng(seed)
    able = (rng.random((layers, experts, holders)) < 0.8).astype(np.uint8)
    owner = rng.integers(NOBODY, holders, (layers, experts))
    before = rng.integers(NOBODY, holders, (layers, experts))
    at = np.maximum(owner, 0)[:, :, None]
    owner[np.take_along_axis(able, at, axis=2)[:, :, 0] == 0] = NOBODY
    found = swapped(owner, before, able)
    for holder in range(NOBODY, holders):
        np.testing.assert_array_equal((found == holder).sum(axis=1), (owner == holder).sum(axis=1))
    np.testing.assert_array_equal(found == NOBODY, owner == NOBODY)
    for layer, expert in np.argwhere(found != NOBODY).tolist():
        assert able[layer, expert, found[layer, expert]]
    stay, stayed = ((one == before) & (before != NOBODY) for one in (found, owner))
    assert (stay >= stayed).all()
    np.testing.assert_array_equal(swapped(found, before, able), found)


def peers(count: int, room: int) -> list[Holder]:
    return [Holder(serial=serial, room=room) for serial in range(count)]


def placed(stock: Stock, holders: list[Holder], rank: I32 | None, before: Placement | None) -> Placement:
    return place(1, stock, stock.nothing(), holders, rank, before=before)


@given(st.integers(2, 5), st.integers(1, 60), st.integers(0, 2**32), st.booleans())
def test_of_those_who_stay_nobody_takes_what_another_one_has(count: int, room: int, seed: int, by_rank: bool) -> None:
    """One of several peers is lost: what it had is shared out, and what is used least is given up for it."""
    stock = Stock(slot_bytes=(0, *[1] * 4), experts=16)
    ranks = np.random.default_rng(seed).permutation(5 * 16).reshape(5, 16).astype(np.int32)
    rank = ranks if by_rank else None
    there = peers(count, room)
    before = placed(stock, there, rank, None)
    assert placed(stock, there, rank, before).is_like(before)
    after = placed(stock, there[1:], rank, before.without(0))
    afresh = placed(stock, there[1:], rank, None)
    np.testing.assert_array_equal(after.owner == LOCAL, afresh.owner == LOCAL)
    kept = int((after.owner == before.owner)[before.owner > 0].sum())
    assert kept >= int((afresh.owner == before.owner)[before.owner > 0].sum())
    if room >= 4 * 16:  # then the share of each of them only grows, and none gives up anything
        assert kept == int((before.owner > 0).sum())


def test_a_full_newcomer_takes_no_more_than_its_part() -> None:
    stock = Stock(slot_bytes=(1,), experts=8)
    before = placed(stock, peers(2, 8), None, None)
    after = placed(stock, peers(3, 8), None, before)
    moved = (after.owner != before.owner).sum()
    assert moved == (after.owner == 2).sum()
    assert sorted(np.bincount(after.owner[0]).tolist()) == [2, 3, 3]
    assert replace(after, version=0).left_over(stock) == 0
