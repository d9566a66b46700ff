"""Which placement is chosen: by pace, without who slows all down, and what is in force if no other one is worth it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.demand import Demand
from coordinator.drift import REVIEWS, Drift
from coordinator.pace import Pace
from coordinator.pace_meter import KEPT, LEAST, REVISIT_LATER_S, REVISIT_S, HereMeter, PaceMeter
from coordinator.placement import Holder, Placement
from coordinator.plan import DEVICE, LOCAL
from coordinator.planner import Here, Planner
from protocol.stock import Stock

LAYERS, EXPERTS, CHOSEN = 4, 16, 4
STOCK = Stock(slot_bytes=(0, *[1] * LAYERS), experts=EXPERTS)
NONE = np.zeros((LAYERS + 1, EXPERTS), np.uint8)
PLANNER = Planner(stock=STOCK, own=NONE, demand=Demand.even(LAYERS + 1, EXPERTS, CHOSEN))
FAST, SLOW, AWFUL = Pace(entry_s=1e-2, call_s=1e-2), Pace(entry_s=2e-2, call_s=1e-2), Pace(entry_s=0.4, call_s=1e-2)


def holders(*paces: Pace | None) -> list[Holder]:
    return [Holder(serial=serial, room=-1, pace=pace) for serial, pace in enumerate(paces)]


def shares(placement: Placement) -> dict[int, int]:
    serials, counts = np.unique(placement.owner[1:], return_counts=True)
    return dict(zip(serials.tolist(), counts.tolist(), strict=True))


def test_who_is_slower_gets_less() -> None:
    placement = PLANNER.place(1, holders(FAST, FAST, SLOW))
    found = shares(placement)
    assert placement.left_out == {}
    assert found[0] == found[1]
    assert 0 < found[2] < found[0]


def test_who_slows_all_down_gets_nothing_and_it_is_said_why() -> None:
    there = holders(FAST, AWFUL, FAST)
    placement = PLANNER.place(1, there)
    assert placement.members == (0, 1, 2)
    assert set(shares(placement)) == {0, 2}
    assert not placement.held(1).any()
    (reason,) = placement.left_out.values()
    assert placement.left_out == {1: reason}
    alone_ms, layer_ms = (float(word) for word in reason.split() if word[0].isdigit())
    assert reason == f"one expert takes {alone_ms:.3g} ms there, a whole layer {layer_ms:.3g} ms elsewhere"
    assert alone_ms == pytest.approx(1e3 * AWFUL.seconds(1), rel=0.01)
    assert layer_ms == pytest.approx(1e3 * PLANNER.outlook(placement, there, Here()).experts_s / LAYERS, rel=0.02)


def test_who_would_be_the_last_one_too_often_gets_nothing_either() -> None:
    there = holders(FAST, FAST, Pace(entry_s=4e-2, call_s=1e-2))
    placement = PLANNER.place(1, there)
    assert set(shares(placement)) == {0, 1}
    (reason,) = placement.left_out.values()
    with_ms, without_ms = (float(word) for word in reason.split() if word[0].isdigit())
    assert reason == f"a layer takes {with_ms:.3g} ms with it, {without_ms:.3g} ms without"
    assert without_ms < 0.95 * with_ms


def test_the_only_one_may_be_slower_than_the_coordinator_itself() -> None:
    assert set(shares(PLANNER.place(1, holders(AWFUL)))) == {0}
    alone = PLANNER.place(1, holders(AWFUL), here=Here(local=FAST))
    assert set(shares(alone)) == {LOCAL}
    assert list(alone.left_out) == [0]
    assert set(shares(PLANNER.place(1, holders(FAST), here=Here(local=AWFUL)))) == {0}


@settings(max_examples=20)
@given(st.lists(st.sampled_from([FAST, SLOW, AWFUL]), min_size=1, max_size=5))
def test_one_more_never_makes_it_slower_by_more_than_is_noticed(paces: list[Pace]) -> None:
    def token_s(count: int) -> float:
        there = holders(*paces[:count])
        return PLANNER.outlook(PLANNER.place(1, there), there, Here()).token_s

    times = [token_s(count) for count in range(1, len(paces) + 1)]
    assert all(later <= sooner / 0.9 for sooner, later in pairwise(times))


def test_what_is_in_force_stays_unless_another_one_is_better_by_more_than_paces_are_known() -> None:
    before = PLANNER.place(1, holders(FAST, FAST))
    little = PLANNER.place(2, holders(FAST, replace(FAST, entry_s=1.1e-2)), before)
    assert little.is_like(before)
    assert little.version == 2
    much = PLANNER.place(3, holders(FAST, replace(FAST, entry_s=2.2e-2)), before)
    assert shares(much)[1] < shares(before)[1]
    moved = int((much.owner != before.owner).sum())
    assert moved == shares(before)[1] - shares(much)[1]  # and nothing in the other direction


def test_who_was_left_out_comes_back_when_it_is_faster() -> None:
    before = PLANNER.place(1, holders(FAST, AWFUL))
    assert list(before.left_out) == [1]
    assert PLANNER.place(2, holders(FAST, AWFUL), before).left_out == before.left_out
    after = PLANNER.place(3, holders(FAST, FAST), before)
    assert after.left_out == {}
    assert shares(after) == {0: 32, 1: 32}


def test_what_is_not_noticed_decides_nothing() -> None:
    near, far = Pace(entry_s=2e-5, call_s=1e-4), Pace(entry_s=2e-5, call_s=3.4e-4)
    assert shares(PLANNER.place(1, holders(near, far))) == {0: 32, 1: 32}
    slower = replace(near, entry_s=5e-5)
    before = PLANNER.place(1, holders(near, near))
    assert PLANNER.place(2, holders(near, slower), before).is_like(before)


def test_nobody_is_left_out_while_nothing_is_known_of_rows_or_paces() -> None:
    for planner in (replace(PLANNER, demand=None), PLANNER):
        placement = planner.place(1, holders(None, None))
        assert shares(placement) == {0: 32, 1: 32}
    assert replace(PLANNER, demand=None).place(1, holders(FAST, AWFUL)).left_out == {}
    with pytest.raises(ValueError, match="nobody knows"):
        replace(PLANNER, demand=None).outlook(placement, holders(FAST), Here())


def test_who_alone_has_something_is_not_left_out() -> None:
    able = NONE.copy()
    able[1:, ::2] = 1
    there = [Holder(serial=0, room=-1, able=able, pace=FAST), Holder(serial=1, room=-1, able=1 - able, pace=AWFUL)]
    placement = PLANNER.place(1, there)
    assert placement.left_out == {}
    assert shares(placement) == {0: 32, 1: 32}


def test_own_slots_and_rooms_are_kept_to() -> None:
    own = NONE.copy()
    own[1:, :4] = 1
    peer = Holder(serial=7, room=8, pace=FAST)
    placement = replace(PLANNER, own=own).place(1, [*holders(FAST, AWFUL), peer])
    np.testing.assert_array_equal(placement.held(DEVICE), own)
    assert int(placement.held(7).sum()) == 8
    assert list(placement.left_out) == [1]


def test_paces_of_now_are_what_plans_share_out_by() -> None:
    team = [replace(one, pages="a") for one in holders(FAST, SLOW)]
    before = PLANNER.place(1, team)
    assert before.runners.tolist() == [[0, 0, 10_000_000, 0], [1, 0, 20_000_000, 0]]
    after = PLANNER.place(2, [replace(one, pages="a") for one in holders(FAST, FAST)], before)
    assert after.is_like(before)
    assert after.runners[:, 2].tolist() == [10_000_000] * 2


# --- what paces are ---------------------------------------------------------------------------------------------------


def test_a_pace_is_the_middle_of_the_last_calls_and_of_what_is_beside_the_quickest() -> None:
    meter = PaceMeter()
    for number in range(LEAST):
        assert meter.pace() is None
        meter.observe(2, elapsed_s=3.0 + number % 4, busy_s=2.0)
    assert meter.pace() == Pace(entry_s=1.0, call_s=2.0)
    for _ in range(KEPT):
        meter.observe(1, elapsed_s=1.0, busy_s=5.0)  # no more than it took can it have computed
    assert meter.pace() == Pace(entry_s=1.0, call_s=0.0)


def test_what_the_coordinator_takes_is_unknown_at_first() -> None:
    meter = HereMeter()
    assert meter.here() == Here()
    for _ in range(LEAST):
        meter.local.add(1.0)
        meter.send.add(2.0)
        meter.dense.add(3.0)
    assert meter.here() == Here(local=Pace(entry_s=1.0), send_s=2.0, dense_s=3.0)


def test_who_was_slow_is_tried_again_and_ever_more_seldom() -> None:
    meter = PaceMeter()
    waited_s = []
    for _ in range(8):
        for _ in range(LEAST):
            meter.observe(1, 1.0, 1.0)
        seconds = REVISIT_S
        while meter.pace() is not None:
            meter.unused(seconds - 0.1, left_out=True)
            seconds += 10.0
            meter.unused(seconds - 10.0 + 0.1, left_out=False)
        waited_s.append(seconds - 10.0)
        meter.unused(1e9, left_out=False)  # of which nothing is known has nothing that could be forgotten
    assert waited_s == [10.0, 20.0, 40.0, 80.0, 160.0, *[REVISIT_LATER_S] * 3]


def test_who_is_slower_or_quicker_by_far_is_so_at_once() -> None:
    drift = Drift()
    drift.placed({1: FAST})
    assert drift.seen({1: AWFUL})
    drift.placed({1: AWFUL})
    assert drift.seen({1: FAST})
    drift.placed({1: replace(FAST, entry_s=0.0, call_s=0.0)})
    assert drift.seen({1: FAST})


def test_a_drift_must_be_large_and_last() -> None:
    drift = Drift()
    drift.placed({1: FAST})
    assert not any(drift.seen({1: replace(FAST, entry_s=1.2e-2)}) for _ in range(2 * REVIEWS))
    for _ in range(2):
        assert [drift.seen({1: SLOW}) for _ in range(REVIEWS)] == [False] * (REVIEWS - 1) + [True]
        assert not drift.seen({1: FAST})
    assert [drift.seen({1: FAST, 2: FAST}) for _ in range(REVIEWS)][-1]
    drift.placed({1: SLOW})
    assert not any(drift.seen({1: SLOW}) for _ in range(2 * REVIEWS))
