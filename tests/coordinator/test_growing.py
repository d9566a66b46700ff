"""Where room is short and the coordinator has no bank no expert that has a holder is ever without one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coordinator.growing import on_the_way
from coordinator.placement import Holder, Placement, place
from coordinator.plan import LOCAL
from protocol.messages import U8
from protocol.stock import Stock

SIZES = st.lists(st.sampled_from([4, 5, 9]), min_size=1, max_size=6)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Stock, list[Holder], list[Holder]]:
    """A model, who is there, and who is to be: some leave, and some come."""
    stock = Stock(slot_bytes=tuple(draw(SIZES)), experts=draw(st.integers(1, 12)))
    rooms = st.one_of(st.just(-1), st.integers(0, stock.bytes + 10))
    holders = [Holder(serial=serial, room=draw(rooms)) for serial in range(draw(st.integers(1, 6)))]
    first, there = draw(st.integers(0, len(holders))), draw(st.integers(0, len(holders)))
    return stock, holders[:there], holders[min(first, there) :]


def none_of(stock: Stock) -> U8:
    return np.zeros((len(stock.slot_bytes), stock.experts), np.uint8)


def with_what_is_given_up(active: Placement, then: Placement, stock: Stock, rooms: Mapping[int, int]) -> Placement:
    """The one in force while members make ready what comes then."""
    for member in active.members:
        before, after = active.held(member), then.held(member)
        if 0 <= rooms[member] < stock.bytes_of(before | after):
            active = active.giving_up(member, after)
    return active


def moved(active: Placement, then: Placement, stock: Stock, rooms: Mapping[int, int]) -> Placement:
    """`then`, after nobody on the way was found to have lost the last holder, or to hold more than it has room for."""
    meanwhile = with_what_is_given_up(active, then, stock, rooms)
    np.testing.assert_array_equal(meanwhile.owner == LOCAL, active.owner == LOCAL)
    for member in then.members:
        assert rooms[member] < 0 or stock.bytes_of(then.held(member)) <= rooms[member]
    return then


@given(clusters(), st.sampled_from([1.0, 1.5, 2.0]))
def test_who_comes_takes_its_part_before_anybody_gives_up_the_last_of_anything(
    cluster: tuple[Stock, list[Holder], list[Holder]], replicas: float
) -> None:
    stock, there, then = cluster
    rooms = {holder.serial: holder.room for holder in (*there, *then)}
    active = place(1, stock, none_of(stock), there, replicas=replicas)
    wanted = place(2, stock, none_of(stock), then, replicas=replicas)
    held = active.owner != LOCAL
    for _ in range(len(rooms) + 2):
        active = moved(active, on_the_way(wanted, active, stock, rooms), stock, rooms)
        assert (active.owner[held] != LOCAL).all() or active is wanted  # which may want to have less of them
    last = on_the_way(wanted, active, stock, rooms)
    assert last.is_like(active), "it comes to an end"


def test_with_room_for_all_of_it_two_peers_share_what_one_had() -> None:
    stock, rooms = Stock(slot_bytes=(1, 1), experts=4), {0: 8, 1: 4}
    one, two = (Holder(serial=serial, room=room) for serial, room in rooms.items())
    active = place(1, stock, none_of(stock), [one])
    wanted = place(2, stock, none_of(stock), [one, two])
    assert on_the_way(wanted, active, stock, rooms) is wanted


def test_full_peers_part_with_what_the_newcomer_has_by_then() -> None:
    stock, rooms = Stock(slot_bytes=(1, 1), experts=4), {0: 4, 1: 4}
    one, two = (Holder(serial=serial, room=room) for serial, room in rooms.items())
    active = place(1, stock, none_of(stock), [one])
    wanted = place(2, stock, none_of(stock), [one, two])
    first = on_the_way(wanted, active, stock, rooms)
    np.testing.assert_array_equal(first.held(1), wanted.held(1))
    np.testing.assert_array_equal(first.held(0), active.held(0) & (1 - wanted.held(1)))
    assert on_the_way(wanted, first, stock, rooms) is wanted
