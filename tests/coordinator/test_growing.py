"""Where room is short and the coordinator has no bank no expert that has a holder is ever without one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from bare_members import STOCK, beat, hello, members, pass_time, say, told
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.growing import on_the_way
from coordinator.member import Instructions
from coordinator.placement import Holder, Placement, place
from coordinator.plan import LOCAL
from protocol.messages import U8, Assign, AssignReady, OpenWork, Welcome
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


class Full(RuleBasedStateMachine):
    """Peers with little room come, get ready and are drained; the coordinator computes no experts itself."""

    def __init__(self) -> None:
        super().__init__()
        self.mesh = members(local=False)
        self.number = itertools.count()
        self.now = 0.0
        self.held = np.zeros((3, 8), np.bool_)
        """What somebody has had since it was held first."""

    @rule(room=st.sampled_from([0, 30, 80, 120, 240, -1]))
    def join(self, room: int) -> None:
        name = f"peer-{next(self.number)}"
        [welcome] = told(self.mesh.hello(name.encode(), hello(name, role="peer", room=room)), Welcome)
        self.mesh.open_work(b"work-" + name.encode(), OpenWork(token=welcome.token))

    @precondition(lambda self: self.mesh.assignment.target and self.mesh.assignment.target.members)
    @rule(data=st.data())
    def somebody_is_ready(self, data: st.DataObject) -> None:
        target = self.mesh.assignment.target
        serial = data.draw(st.sampled_from(sorted(target.members)))
        self.is_ready(serial)

    @rule()
    def all_are_ready_in_turns(self) -> None:
        for _ in range(3):
            for member in self.mesh:
                self.is_ready(member.serial)
                say(self.mesh, member, beat(member.token), self.now)  # else it falls silent
            self.switch()
            pass_time(self.mesh, self.now, 0.1)
            self.now += 0.1

    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        names = sorted(member.name for member in self.mesh)
        if names:
            self.mesh.drain(b"a client", data.draw(st.sampled_from(names)))

    @rule()
    def switch(self) -> None:
        self.mesh.assignment.switch()

    def is_ready(self, serial: int) -> Instructions:
        target, member = self.mesh.assignment.target, self.mesh.get(serial)
        if target is None or member is None or not self.mesh.assignment.was_told(member):
            return []
        report = AssignReady(placement=target.version, experts=int(target.held(serial).sum()))
        return say(self.mesh, member, report, self.now)

    @invariant()
    def nobody_has_given_up_the_last_of_anything(self) -> None:
        held = self.mesh.assignment.active.owner != LOCAL
        assert not (self.held & ~held).any()
        self.held |= held

    @invariant()
    def nobody_holds_more_than_it_has_room_for(self) -> None:
        for placement in filter(None, (self.mesh.assignment.active, self.mesh.assignment.target)):
            for member in self.mesh:
                assert member.hello.room < 0 or STOCK.bytes_of(placement.held(member.serial)) <= member.hello.room


TestFull = Full.TestCase
TestFull.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_full_peer_is_drained_by_way_of_a_newcomer() -> None:
    mesh = Full()
    mesh.join(room=240)
    mesh.all_are_ready_in_turns()
    mesh.join(room=120)
    mesh.join(room=120)
    mesh.all_are_ready_in_turns()
    assert not told(mesh.mesh.drain(b"a client", "peer-0"), Assign) or mesh.mesh.assignment.target
    mesh.all_are_ready_in_turns()
    mesh.all_are_ready_in_turns()
    assert "peer-0" not in mesh.mesh.assignment.active.members
    mesh.nobody_has_given_up_the_last_of_anything()
    assert [int(mesh.mesh.assignment.active.held(serial).sum()) for serial in (1, 2)] == [12, 12]
