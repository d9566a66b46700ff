"""Placements: what is in the coordinator's own slots stays, room is kept to, the rest is even, all is placed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing_twin import can_hold

from coordinator.placement import Holder, Placement, own_share, place, share_of
from coordinator.plan import DEVICE, LOCAL
from protocol.messages import I32, U8
from protocol.pack import Share
from protocol.stock import Stock

MEMBERS = st.lists(st.integers(0, 1000), min_size=1, max_size=9, unique=True)
SIZES = st.lists(st.sampled_from([4, 5, 9]), min_size=1, max_size=12)


@st.composite
def stocks(draw: st.DrawFn) -> Stock:
    dense = draw(st.integers(0, 3))
    return Stock(slot_bytes=(*[0] * dense, *draw(SIZES)), experts=draw(st.integers(1, 40)))


@st.composite
def some_holders(draw: st.DrawFn, stock: Stock) -> list[Holder]:
    rooms = st.one_of(st.just(-1), st.integers(0, stock.bytes + 10))
    serials = draw(st.lists(st.integers(0, 99), unique=True, max_size=6))
    return [Holder(serial=serial, room=draw(rooms), able=draw(some_able(stock))) for serial in serials]


def some_able(stock: Stock) -> st.SearchStrategy[U8 | None]:
    """The weights that a member has: all, or those of a share."""
    shape = len(stock.slot_bytes), stock.experts
    return st.one_of(st.none(), st.integers(0, 2**32).map(lambda seed: a_share(seed, shape)))


def a_share(seed: int, shape: tuple[int, ...]) -> U8:
    rng = np.random.default_rng(seed)
    return (rng.random(shape) < rng.random()).astype(np.uint8)


def workers(serials: Sequence[int]) -> list[Holder]:
    return [Holder(serial=serial, room=-1) for serial in serials]


def stock_of(layers: int, experts: int) -> Stock:
    return Stock(slot_bytes=(1,) * layers, experts=experts)


def none_of(stock: Stock) -> U8:
    return np.zeros((len(stock.slot_bytes), stock.experts), np.uint8)


def used(placement: Placement, stock: Stock, holder: int) -> int:
    """Bytes of what it holds."""
    return int((placement.held(holder).sum(axis=1) * np.array(stock.slot_bytes)).sum())


# --- teams: members that share pages ------------------------------------------------------------------------------


@st.composite
def paged(draw: st.DrawFn, stock: Stock) -> list[Holder]:
    """Holders that share pages, or have their own."""
    pages = st.sampled_from(["", "a", "b"])
    return [replace(holder, pages=draw(pages), threads=draw(st.integers(0, 3))) for holder in draw(some_holders(stock))]


@given(st.data())
def test_who_shares_pages_holds_what_any_of_its_team_was_given(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    holders = data.draw(paged(stock))
    placement = place(1, stock, none_of(stock), holders)
    for holder in holders:
        mates = [holder]
        if holder.pages and holder.room < 0 and holder.able is None:
            mates = [one for one in holders if one.pages == holder.pages and one.room < 0 and one.able is None]
        given_to_team = np.isin(placement.owner, [mate.serial for mate in mates])
        np.testing.assert_array_equal(placement.held(holder.serial), given_to_team)
        for layer in stock.layers:
            experts = np.flatnonzero(given_to_team[layer]).astype(np.int32)
            assert placement.holds(holder.serial, layer, experts)
            assert not placement.holds(holder.serial, layer, np.arange(stock.experts, dtype=np.int32)) or all(
                given_to_team[layer]
            )


@given(st.data())
def test_what_a_lost_member_owned_goes_to_its_team_or_the_local_bank(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    holders = data.draw(paged(stock))
    placement = place(1, stock, none_of(stock), holders)
    for lost in [holder.serial for holder in data.draw(st.permutations(holders))]:
        mates = set(placement.team(lost).tolist()) - {lost}
        after = placement.without(lost)
        assert lost not in after.members
        assert lost not in after.runners[:, 0]
        was_its = placement.owner == lost
        np.testing.assert_array_equal(after.owner[~was_its], placement.owner[~was_its])
        assert set(after.owner[was_its].tolist()) <= (mates or {LOCAL})
        for mate in mates:  # nobody is asked for what it was not told to hold
            np.testing.assert_array_equal(after.held(mate), placement.held(mate))
        placement = after


# --- members that hold any number ---------------------------------------------------------------------------------


@given(stocks(), MEMBERS)
def test_each_layer_is_even_within_one_expert(stock: Stock, members: list[int]) -> None:
    placement = place(1, stock, none_of(stock), workers(members))
    for layer in stock.layers:
        counts = [int((placement.owner[layer] == member).sum()) for member in members]
        assert sum(counts) == stock.experts
        assert max(counts) - min(counts) <= 1


@given(st.integers(1, 9), st.data())
def test_every_member_holds_something_in_every_layer(count: int, data: st.DataObject) -> None:
    stock = stock_of(5, data.draw(st.integers(count, 40)))
    placement = place(1, stock, none_of(stock), workers(range(count)))
    assert all(placement.held(member).any(axis=1).all() for member in range(count))


def test_the_extra_expert_rotates_with_the_layer() -> None:
    stock = stock_of(3, 4)
    placement = place(1, stock, none_of(stock), workers([10, 11, 12]))
    assert placement.owner.tolist() == [[10, 11, 12, 10], [11, 12, 10, 11], [12, 10, 11, 12]]
    assert {int(placement.held(member).sum()) for member in (10, 11, 12)} == {4}
    assert placement.held(10).dtype == np.uint8


# --- everybody ------------------------------------------------------------------------------------------------------


@given(st.data())
def test_all_is_placed_once_and_nobody_gets_more_than_there_is_room_for(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    own = own_share(stock, data.draw(st.integers(0, stock.bytes + 10)))
    holders = data.draw(some_holders(stock))
    placement = place(3, stock, own, holders)
    assert placement.version == 3
    assert placement.members == tuple(holder.serial for holder in holders)
    assert set(placement.owner.ravel().tolist()) <= {LOCAL, DEVICE, *placement.members}
    np.testing.assert_array_equal(placement.held(DEVICE), own)
    for layer in set(range(len(stock.slot_bytes))) - set(stock.layers):
        assert (placement.owner[layer] == LOCAL).all()
    for holder in holders:
        assert holder.room < 0 or used(placement, stock, holder.serial) <= holder.room
        assert holder.able is None or not (placement.held(holder.serial) > holder.able).any()
    for layer in stock.layers:
        for expert in np.flatnonzero(placement.owner[layer] == LOCAL):  # then only because nobody can hold it
            for holder in holders:
                room = np.inf if holder.room < 0 else holder.room - used(placement, stock, holder.serial)
                assert room < stock.slot_bytes[layer] or not can_hold(holder, layer, expert)


@given(st.data())
def test_slots_are_filled_by_rank_in_all_layers_at_the_same_time(data: st.DataObject) -> None:
    stock = stock_of(data.draw(st.integers(1, 9)), data.draw(st.integers(1, 30)))
    limit = data.draw(st.integers(0, stock.bytes))
    own = own_share(stock, limit)
    assert own.sum() == limit
    held = own.sum(axis=1)
    assert held.max() - held.min() <= 1
    assert all(row[:count].all() and not row[count:].any() for row, count in zip(own, held, strict=True))


@given(stocks(), st.data())
def test_slots_leave_no_room_that_an_expert_would_fit_in(stock: Stock, data: st.DataObject) -> None:
    limit = data.draw(st.integers(0, stock.bytes + 10))
    own = own_share(stock, limit)
    used_bytes = int((own.sum(axis=1) * np.array(stock.slot_bytes)).sum())
    missing = [size for size, row in zip(stock.slot_bytes, own, strict=True) if size and not row.all()]
    assert used_bytes <= limit
    assert not missing or limit - used_bytes < min(missing)


def test_own_slots_then_peers_in_turn_then_workers() -> None:
    stock = stock_of(2, 8)
    own = own_share(stock, 4)
    peers = [Holder(serial=5, room=3), Holder(serial=6, room=2)]
    placement = place(1, stock, own, [Holder(serial=0, room=-1), *peers, Holder(serial=1, room=-1)])
    assert placement.owner.tolist() == [[-2, -2, 5, 6, 5, 0, 1, 0], [-2, -2, 6, 5, 1, 0, 1, 0]]
    assert placement.members == (0, 5, 6, 1)


def test_what_fits_nowhere_is_local() -> None:
    stock = Stock(slot_bytes=(0, 4, 9), experts=2)
    placement = place(1, stock, own_share(stock, 8), [Holder(serial=7, room=9), Holder(serial=8, room=0)])
    assert placement.owner.tolist() == [[LOCAL, LOCAL], [DEVICE, DEVICE], [7, LOCAL]]
    assert placement.members == (7, 8)


# --- shares of the model's file -------------------------------------------------------------------------------------


@given(stocks(), st.integers(1, 9))
def test_shares_of_all_numbers_have_every_expert_once_and_are_what_workers_get(stock: Stock, count: int) -> None:
    shares = [share_of(stock, Share(number=number, count=count)) for number in range(1, count + 1)]
    of_layers = np.zeros(len(stock.slot_bytes), np.uint8)
    of_layers[list(stock.layers)] = 1
    np.testing.assert_array_equal(sum(shares), np.repeat(of_layers[:, None], stock.experts, axis=1))
    whole = place(1, stock, none_of(stock), workers(range(count)))
    holders = [Holder(serial=serial, room=-1, able=share) for serial, share in enumerate(shares)]
    for order in (holders, holders[::-1]):
        placement = place(1, stock, none_of(stock), order)
        np.testing.assert_array_equal(placement.owner, whole.owner)


def test_who_has_everything_takes_what_is_in_no_share_and_helps_with_the_rest() -> None:
    stock = stock_of(2, 6)
    first = np.array([[1, 1, 1, 1, 0, 0]] * 2, np.uint8)
    placement = place(1, stock, none_of(stock), [Holder(serial=7, room=-1, able=first), Holder(serial=8, room=-1)])
    assert [int((row == 7).sum()) for row in placement.owner] == [3, 3]
    assert (placement.owner[:, 4:] == 8).all()


def test_peers_with_shares_get_as_many_as_those_who_have_everything() -> None:
    stock = stock_of(2, 8)
    share = share_of(stock, Share(number=1, count=2))
    holders = [Holder(serial=3, room=100), Holder(serial=4, room=100, able=share)]
    placement = place(1, stock, none_of(stock), holders)
    assert [int((row == 4).sum()) for row in placement.owner] == [4, 4]


def test_what_nobody_can_hold_is_local_though_there_is_room() -> None:
    stock = stock_of(1, 4)
    able = np.array([[1, 0, 1, 0]], np.uint8)
    peer, worker = Holder(serial=1, room=1, able=able), Holder(serial=2, room=-1, able=able)
    assert place(1, stock, none_of(stock), [peer, worker]).owner.tolist() == [[1, LOCAL, 2, LOCAL]]


# --- by rank --------------------------------------------------------------------------------------------------------


def a_rank(seed: int, stock: Stock) -> I32:
    shape = len(stock.slot_bytes), stock.experts
    return np.random.default_rng(seed).permutation(shape[0] * shape[1]).astype(np.int32).reshape(shape)


def some_ranks(stock: Stock) -> st.SearchStrategy[I32]:
    return st.integers(0, 2**32).map(lambda seed: a_rank(seed, stock))


def hottest(stock: Stock, rank: I32) -> list[tuple[int, int]]:
    """Every (layer, expert) by rank."""
    pairs = [(layer, expert) for layer in stock.layers for expert in range(stock.experts)]
    return sorted(pairs, key=lambda pair: int(rank[pair]))


@given(st.data())
def test_slots_have_what_fits_of_the_experts_used_most(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    rank = data.draw(some_ranks(stock))
    room = data.draw(st.integers(0, stock.bytes + 10))
    own = own_share(stock, room, rank)
    for layer, expert in hottest(stock, rank):
        fits = stock.slot_bytes[layer] <= room
        assert own[layer, expert] == fits
        room -= stock.slot_bytes[layer] * fits


@given(st.data())
def test_with_room_for_so_many_holders_have_so_many_of_those_used_most(data: st.DataObject) -> None:
    stock = stock_of(data.draw(st.integers(1, 6)), data.draw(st.integers(1, 20)))
    rank = data.draw(some_ranks(stock))
    own = own_share(stock, data.draw(st.integers(0, stock.bytes)), rank)
    holders = [replace(holder, able=None) for holder in data.draw(some_holders(stock))]
    placement = place(1, stock, own, holders, rank)
    limited = [holder for holder in holders if holder.room >= 0]
    room = sum(holder.room for holder in limited)
    dealt = [pair for pair in hottest(stock, rank) if not own[pair]][:room]
    serials = {holder.serial for holder in limited}
    assert {pair for pair in hottest(stock, rank) if int(placement.owner[pair]) in serials} == set(dealt)
    for holder in limited:
        assert used(placement, stock, holder.serial) <= holder.room


@given(st.data())
def test_those_of_a_layer_that_are_used_most_are_shared_out_evenly(data: st.DataObject) -> None:
    stock = stock_of(data.draw(st.integers(1, 5)), data.draw(st.integers(1, 20)))
    rank = data.draw(some_ranks(stock))
    count = data.draw(st.integers(1, 5))
    placement = place(1, stock, none_of(stock), [Holder(serial=one, room=stock.bytes) for one in range(count)], rank)
    for layer in stock.layers:
        for most in range(1, stock.experts + 1):
            owners = placement.owner[layer, np.argsort(rank[layer])[:most]]
            counts = np.bincount(owners, minlength=count)
            assert counts.max() - counts.min() <= 1


@given(st.data())
def test_by_rank_all_is_placed_once_and_nobody_gets_more_than_there_is_room_for(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    rank, holders = data.draw(some_ranks(stock)), data.draw(some_holders(stock))
    own = own_share(stock, data.draw(st.integers(0, stock.bytes)), rank)
    placement = place(1, stock, own, holders, rank)
    np.testing.assert_array_equal(placement.held(DEVICE), own)
    for holder in holders:
        assert holder.room < 0 or used(placement, stock, holder.serial) <= holder.room
        assert holder.able is None or not (placement.held(holder.serial) > holder.able).any()
    for layer in stock.layers:
        for expert in np.flatnonzero(placement.owner[layer] == LOCAL):
            for holder in holders:
                room = np.inf if holder.room < 0 else holder.room - used(placement, stock, holder.serial)
                assert room < stock.slot_bytes[layer] or not can_hold(holder, layer, expert)


@given(st.data())
def test_the_order_that_there_is_without_a_rank_as_a_rank_changes_no_slot(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    room = data.draw(st.integers(0, stock.bytes))
    turns = np.arange(len(stock.slot_bytes) * stock.experts, dtype=np.int32)
    rank = np.ascontiguousarray(turns.reshape(stock.experts, -1).T)
    np.testing.assert_array_equal(own_share(stock, room, rank), own_share(stock, room))


@given(st.data())
def test_without_limits_a_rank_changes_nothing(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    holders = [replace(holder, room=-1) for holder in data.draw(some_holders(stock))]
    plain = place(1, stock, none_of(stock), holders)
    assert plain.is_like(place(1, stock, none_of(stock), holders, data.draw(some_ranks(stock))))


# --- changes --------------------------------------------------------------------------------------------------------


@given(st.data())
def test_without_a_member_only_its_experts_become_local(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    holders = data.draw(some_holders(stock))
    own = own_share(stock, data.draw(st.integers(0, stock.bytes)))
    before = place(7, stock, own, holders)
    gone = data.draw(st.sampled_from([*before.members, 1000]))
    after = before.without(gone)
    assert after.version == before.version
    assert after.members == tuple(member for member in before.members if member != gone)
    np.testing.assert_array_equal(after.owner, np.where(before.owner == gone, LOCAL, before.owner))
    assert after.is_like(before) == (gone not in before.members)


@pytest.mark.parametrize("limit", [0, 6])
def test_without_members_everything_is_local_or_in_own_slots(limit: int) -> None:
    stock = stock_of(2, 3)
    placement = place(0, stock, own_share(stock, limit), ())
    assert placement.members == ()
    assert placement.owner.tolist() == [[DEVICE if limit else LOCAL] * 3] * 2


def test_the_same_owners_in_another_order_of_members_are_another_placement() -> None:
    stock = stock_of(1, 2)
    one, other = (place(1, stock, none_of(stock), workers(serials)) for serials in ([3], [3, 4]))
    assert not one.is_like(other)
    assert one.is_like(place(2, stock, none_of(stock), workers([3])))
