"""Placements by pace and use: all are done at the same time, little moves, and second copies are where they help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.pace import Pace, farther_s
from coordinator.placement import Holder, Placement, place
from coordinator.plan import DEVICE, LOCAL
from coordinator.profile import F64
from coordinator.sampled_rows import expected_use
from coordinator.spread import NOBODY, fair_shares, spread
from protocol.messages import I64, U8
from protocol.stock import Stock

CHOSEN = 4


@st.composite
def stocks(draw: st.DrawFn) -> Stock:
    sizes = draw(st.lists(st.sampled_from([4, 5, 9]), min_size=1, max_size=5))
    return Stock(slot_bytes=(*[0] * draw(st.integers(0, 2)), *sizes), experts=draw(st.integers(CHOSEN, 24)))


@st.composite
def uses(draw: st.DrawFn, stock: Stock) -> F64:
    """Expected entries of one row: all alike, or a few experts have most."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    counts = rng.random((len(stock.slot_bytes), stock.experts)) ** draw(st.sampled_from([0, 1, 6])) * 1000
    return expected_use(counts, CHOSEN)


PACES = st.builds(Pace, entry_s=st.sampled_from([1.0, 1.5, 4.0]), call_s=st.sampled_from([0.0, 0.25, 1.0]))


@st.composite
def crowds(draw: st.DrawFn, stock: Stock, least: int = 1) -> list[Holder]:
    """Members of various paces, rooms, shares and teams."""
    serials = draw(st.lists(st.integers(0, 99), unique=True, min_size=least, max_size=6))
    return [
        Holder(
            serial=serial,
            room=draw(st.one_of(st.just(-1), st.just(-1), st.integers(0, stock.bytes))),
            able=draw(st.one_of(st.none(), st.none(), shares(stock))),
            pages=draw(st.sampled_from(["", "", "a", "b"])),
            pace=draw(st.one_of(st.none(), PACES)),
        )
        for serial in serials
    ]


def shares(stock: Stock) -> st.SearchStrategy[U8]:
    shape = len(stock.slot_bytes), stock.experts
    return st.integers(0, 2**32).map(lambda seed: (np.random.default_rng(seed).random(shape) < 0.6).astype(np.uint8))


def workers(*paces: Pace | None) -> list[Holder]:
    return [Holder(serial=serial, room=-1, pace=pace) for serial, pace in enumerate(paces)]


def nothing(stock: Stock) -> U8:
    return stock.nothing()


# --- by pace ------------------------------------------------------------------------------------------------------


@given(st.data())
def test_nobody_would_be_done_sooner_if_the_last_one_gave_an_expert_away(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    use = data.draw(uses(stock))
    paces = data.draw(st.lists(PACES, min_size=1, max_size=6))
    far_s = farther_s(np.array([pace.call_s for pace in paces]))  # calls that are nearly alike count as alike
    placement = place(1, stock, nothing(stock), workers(*paces), use=use)
    for layer in stock.layers:
        loads = np.array([load(placement, use, layer, serial) for serial in range(len(paces))])
        entry_s = np.array([pace.entry_s for pace in paces])
        done = far_s + loads * entry_s
        more = far_s + (loads + use[layer].max()) * entry_s  # what the last one got last was at most that
        assert done[loads > 0].max() <= more.min() + 1e-9


@example(18, [Pace(entry_s=1.0, call_s=0.25), Pace(entry_s=1.0, call_s=1.0)])
@given(st.integers(1, 40), st.lists(PACES, min_size=1, max_size=6))
def test_experts_that_are_alike_are_dealt_so_that_the_last_is_done_as_soon_as_can_be(
    experts: int, paces: list[Pace]
) -> None:
    stock = Stock(slot_bytes=(1,), experts=experts)
    use = np.full((1, experts), CHOSEN / experts)
    placement = place(1, stock, nothing(stock), workers(*paces), use=use)
    far_s = farther_s(np.array([pace.call_s for pace in paces]))
    counts_of = np.bincount(placement.owner[0], minlength=len(paces))
    used = counts_of > 0
    entry_s = np.array([pace.entry_s for pace in paces]) * CHOSEN / experts
    last = (far_s + counts_of * entry_s)[used].max()
    fitting = np.maximum(np.floor((last * (1 - 1e-9) - far_s) / entry_s), 0)  # how many each could have before that
    assert fitting.sum() < experts


def load(placement: Placement, use: F64, layer: int, serial: int) -> float:
    return float(use[layer, placement.owner[layer] == serial].sum())


def test_twice_as_fast_is_twice_as_many_and_a_hot_expert_is_worth_several() -> None:
    stock = Stock(slot_bytes=(1,), experts=12)
    fast, slow = Pace(entry_s=1.0), Pace(entry_s=2.0)
    alike = np.full((1, 12), CHOSEN / 12)
    assert counts(place(1, stock, nothing(stock), workers(fast, slow), use=alike)) == {0: 8, 1: 4}
    hot = np.array([[1.0] + [3 / 11] * 11])
    assert counts(place(1, stock, nothing(stock), workers(fast, fast), use=hot)) == {0: 5, 1: 7}


def test_who_is_too_far_away_to_be_done_in_time_gets_nothing() -> None:
    stock = Stock(slot_bytes=(1,), experts=12)
    near, far = Pace(entry_s=1.0, call_s=0.1), Pace(entry_s=1.0, call_s=CHOSEN + 1.0)
    placement = place(1, stock, nothing(stock), workers(near, far), use=np.full((1, 12), CHOSEN / 12))
    assert counts(placement) == {0: 12}


def test_of_whom_nobody_knows_the_pace_threads_count() -> None:
    stock = Stock(slot_bytes=(1,), experts=12)
    some = [Holder(serial=0, room=-1, threads=2), Holder(serial=1, room=-1, threads=1)]
    assert counts(place(1, stock, nothing(stock), some)) == {0: 8, 1: 4}
    known = [replace(some[0], pace=Pace(entry_s=5.0)), some[1]]
    assert counts(place(1, stock, nothing(stock), known)) == {0: 8, 1: 4}


def counts(placement: Placement) -> dict[int, int]:
    serials, times = np.unique(placement.owner, return_counts=True)
    return dict(zip(serials.tolist(), times.tolist(), strict=True))


@given(st.lists(PACES, min_size=1, max_size=8), st.floats(0.1, 100))
def test_fair_shares_end_at_the_same_time(paces: list[Pace], total: float) -> None:
    entry_s, call_s = np.array([one.entry_s for one in paces]), np.array([one.call_s for one in paces])
    given_out = fair_shares(total, entry_s, call_s)
    assert given_out.sum() == pytest.approx(total)
    done = call_s + given_out * entry_s
    end = done[given_out > 0].max()
    np.testing.assert_allclose(done[given_out > 0], end)
    assert (call_s[given_out == 0] >= end - 1e-9).all()


# --- little moves -------------------------------------------------------------------------------------------------


@given(st.data())
def test_placing_the_same_again_moves_nothing_where_experts_are_alike(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    holders = [replace(one, able=None) for one in data.draw(crowds(stock))]
    before = place(1, stock, nothing(stock), holders)
    assert place(2, stock, nothing(stock), holders, before=before).is_like(before)


@given(st.data())
def test_when_one_comes_nobody_else_gets_anything_and_it_gets_its_share(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    pace = data.draw(PACES)
    count = data.draw(st.integers(1, 5))
    before = place(1, stock, nothing(stock), workers(*[pace] * count))
    after = place(2, stock, nothing(stock), workers(*[pace] * (count + 1)), before=before)
    moved = before.owner != after.owner
    assert (after.owner[moved] == count).all()
    for layer in stock.layers:
        share = int((after.owner[layer] == count).sum())
        assert stock.experts // (count + 1) <= share <= -(-stock.experts // (count + 1))


@given(st.data())
def test_when_one_leaves_only_what_it_had_moves(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    pace = data.draw(PACES)
    holders = workers(*[pace] * data.draw(st.integers(2, 6)))
    before = place(1, stock, nothing(stock), holders)
    gone = data.draw(st.sampled_from(holders))
    after = place(2, stock, nothing(stock), [one for one in holders if one is not gone], before=before)
    assert (before.owner[before.owner != after.owner] == gone.serial).all()
    for layer in stock.layers:
        held = [int((after.owner[layer] == one.serial).sum()) for one in holders if one is not gone]
        assert max(held) - min(held) <= 1


def test_who_keeps_less_keeps_what_is_used_most() -> None:
    use = np.array([[0.4, 0.3, 0.2, 0.1]])
    before: I64 = np.zeros((1, 4), np.int64)
    able = np.ones((1, 4, 2), np.uint8)
    assert spread(able, use, np.ones(2), np.zeros(2), before=before).tolist() == [[0, 1, 1, 0]]
    assert spread(0 * able, use, np.ones(2), np.zeros(2), before=before).tolist() == [[NOBODY] * 4]


# --- everything at the same time ------------------------------------------------------------------------------------


@given(st.data())
def test_whatever_happens_all_is_placed_once_with_those_who_can(data: st.DataObject) -> None:
    stock = data.draw(stocks())
    use = data.draw(uses(stock))
    placement = None
    for version in range(1, 4):
        holders = data.draw(crowds(stock, least=0))
        replicas = data.draw(st.sampled_from([1.0, 1.2, 2.0]))
        placement = place(version, stock, nothing(stock), holders, use=use, before=placement, replicas=replicas)
        check(placement, stock, holders, replicas)
        gone = data.draw(st.permutations(holders))
        rest = placement
        for one in gone:
            rest = rest.without(one.serial)
            there = [other for other in holders if other.serial in rest.members]
            check(rest, stock, there, replicas)
            for other in there:  # nobody is asked for what it was not told to hold
                assert not (rest.held(other.serial) > placement.held(other.serial)).any()
            lost = (placement.owner >= 0) & (rest.owner == LOCAL)
            for other in there:
                assert not (placement.held(other.serial).astype(np.bool_) & lost).any()
        assert (rest.owner < 0).all()


def check(placement: Placement, stock: Stock, holders: Sequence[Holder], replicas: float) -> None:
    by_serial = {one.serial: one for one in holders}
    assert set(placement.owner.ravel().tolist()) <= {LOCAL, DEVICE, *by_serial}
    assert set(placement.also.ravel().tolist()) <= {LOCAL, *by_serial}
    for one in holders:
        held = placement.held(one.serial)
        assert one.room < 0 or stock.bytes_of(held) <= one.room
        assert one.able is None or not (held > one.able).any()
        assert not held[[layer for layer, size in enumerate(stock.slot_bytes) if not size]].any()
    if placement.also.size:
        second = placement.also != LOCAL
        assert second.sum() <= round((replicas - 1) * stock.experts * len(stock.layers))
        assert (placement.owner[second] >= 0).all()
        assert (placement.also[second] != placement.owner[second]).all()


# --- second copies --------------------------------------------------------------------------------------------------


def test_those_used_most_have_two_holders_of_different_teams_as_many_as_were_asked_for() -> None:
    stock = Stock(slot_bytes=(1, 1), experts=10)
    use = expected_use(np.arange(20.0).reshape(2, 10), CHOSEN)
    holders = [replace(one, pages=pages) for one, pages in zip(workers(*[None] * 4), "aabb", strict=True)]
    placement = place(1, stock, nothing(stock), holders, use=use, replicas=1.3)
    second = placement.also != LOCAL
    assert second.sum() == 6
    assert use[second].min() >= use[~second].max()
    teams = {0: "a", 1: "a", 2: "b", 3: "b"}
    for first, other in zip(placement.owner[second].tolist(), placement.also[second].tolist(), strict=True):
        assert teams[first] != teams[other]
    assert {int(one) for one in placement.also[second]} == {0, 1, 2, 3}
    assert placement.runners[:, :2].tolist() == [[0, 0], [1, 0], [2, 1], [3, 1]]


def test_a_lost_members_experts_go_to_their_second_holders() -> None:
    stock = Stock(slot_bytes=(1,), experts=6)
    placement = place(1, stock, nothing(stock), workers(None, None, None), replicas=1.5)
    assert placement.owner.tolist() == [[0, 1, 2, 0, 1, 2]]
    assert placement.also.tolist() == [[1, 0, 0, LOCAL, LOCAL, LOCAL]]
    after = placement.without(0)
    assert after.owner.tolist() == [[1, 1, 2, LOCAL, 1, 2]]
    assert (after.also == LOCAL).all()
    np.testing.assert_array_equal(after.held(1), placement.held(1))
    assert after.holds(2, 0, np.array([2, 5], np.int32))
    assert not after.holds(2, 0, np.array([0], np.int32))
    none = placement.giving_up(1, nothing(stock))
    assert none.owner.tolist() == [[0, 0, 2, 0, LOCAL, 2]]
    assert none.also.tolist() == [[LOCAL, LOCAL, 0, LOCAL, LOCAL, LOCAL]]


def test_second_copies_stay_where_they_are() -> None:
    stock = Stock(slot_bytes=(1, 1), experts=12)
    use = expected_use(np.random.default_rng(1).random((2, 12)), CHOSEN)
    before = place(1, stock, nothing(stock), workers(None, None, None), use=use, replicas=1.5)
    after = place(2, stock, nothing(stock), workers(None, None, None), use=use, replicas=1.5, before=before)
    assert after.is_like(before)
    assert not after.is_like(place(2, stock, nothing(stock), workers(None, None, None), use=use))


def test_second_copies_are_with_whoever_has_memory_to_spare() -> None:
    stock = Stock(slot_bytes=(0, 10, 10), experts=6)
    holders = [
        replace(one, memory=memory) for one, memory in zip(workers(None, None, None), (40, 200, 60), strict=True)
    ]
    placement = place(1, stock, nothing(stock), holders, replicas=2.0)
    second = [int((placement.also == serial).sum()) for serial in range(3)]
    assert second == [0, 8, 2], (
        "each owns four; the first is full, the third has room for two, and nobody its own twice"
    )
    unknown = place(1, stock, nothing(stock), workers(None, None, None), replicas=2.0)
    assert (unknown.also != LOCAL).sum() == 12


def test_alone_nobody_has_second_copies() -> None:
    stock = Stock(slot_bytes=(1,), experts=6)
    assert place(1, stock, nothing(stock), workers(None), replicas=2.0).also.size == 0
    team = [replace(one, pages="a") for one in workers(None, None)]
    assert place(1, stock, nothing(stock), team, replicas=2.0).also.size == 0
