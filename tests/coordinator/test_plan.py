"""The per-layer plan: every entry once, in order, and refusals before anything could be sent."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.plan import LOCAL, NOBODY_ELSE, Coverage, Part, plan_layer
from protocol.errors import RequestError
from protocol.messages import F32, I32, I64, MAX_ENTRIES_PER_ROW, MAX_ROWS


@st.composite
def routings(draw: st.DrawFn) -> tuple[I32, F32, I64]:
    """Ids (rows, k) without repeats in a row, weights that name their entry, and an owner table."""
    experts = draw(st.integers(1, 12))
    k = draw(st.integers(1, min(experts, 4)))
    rows = draw(st.integers(1, 9))
    ids = np.array([draw(st.permutations(range(experts)))[:k] for _ in range(rows)], np.int32)
    weights = np.arange(rows * k, dtype=np.float32).reshape(rows, k)
    owner = np.array(draw(st.lists(st.integers(LOCAL, 3), min_size=experts, max_size=experts)), np.int64)
    return ids, weights, owner


@given(routings())
def test_every_entry_has_one_part_and_that_is_its_owners(routing: tuple[I32, F32, I64]) -> None:
    ids, weights, owner = routing
    parts = plan_layer(3, ids, weights, owner)
    routed = {
        (row, expert): weights[row, j] for row, experts in enumerate(ids.tolist()) for j, expert in enumerate(experts)
    }
    planned = [entry for part in parts for entry in zip(part.row.tolist(), part.expert.tolist(), strict=True)]
    assert len(planned) == len(routed)
    assert set(planned) == routed.keys()
    assert len({part.holder for part in parts}) == len(parts)
    for part in parts:
        assert part.attempt == 0
        assert (owner[part.expert] == part.holder).all()
        for row, expert, weight in zip(part.row.tolist(), part.expert.tolist(), part.weight, strict=True):
            assert routed[row, expert] == weight


@given(routings())
def test_entries_ascend_by_expert_then_row_and_the_local_part_comes_first(routing: tuple[I32, F32, I64]) -> None:
    parts = plan_layer(0, *routing)
    holders = [part.holder for part in parts]
    assert holders == sorted(holders)
    for part in parts:
        order = list(zip(part.expert.tolist(), part.row.tolist(), strict=True))
        assert order == sorted(order)
        assert part.expert.dtype == part.row.dtype == np.int32
        assert part.weight.dtype == np.float32


@given(routings())
def test_the_plan_is_that_of_plain_python(routing: tuple[I32, F32, I64]) -> None:
    ids, weights, owner = routing
    entries = sorted(
        (int(owner[expert]), expert, row, float(weights[row, j]))
        for row, experts in enumerate(ids.tolist())
        for j, expert in enumerate(experts)
    )
    planned = [
        (part.holder, *entry)
        for part in plan_layer(0, ids, weights, owner)
        for entry in zip(part.expert.tolist(), part.row.tolist(), part.weight.tolist(), strict=True)
    ]
    assert planned == entries


# --- what more than one has ------------------------------------------------------------------------------------------


@st.composite
def some_runners(draw: st.DrawFn) -> I64:
    """Some of the holders 0 to 3 and others, alone and in teams, at various paces."""
    serials = draw(st.lists(st.integers(0, 6), unique=True))
    rows = [(serial, draw(st.integers(-1, 2)), draw(st.integers(1, 4)), draw(st.integers(0, 9))) for serial in serials]
    return np.array(sorted(rows), np.int64).reshape(-1, 4)


def some_also(experts: int) -> st.SearchStrategy[I64]:
    """Nobody has anything twice, or some do."""
    table = st.lists(st.integers(LOCAL, 6), min_size=experts, max_size=experts).map(lambda one: np.array(one, np.int64))
    return st.one_of(st.just(NOBODY_ELSE), table)


def shared_out(ids: I32, owner: I64, also: I64, runners: I64) -> dict[int, int]:
    """Who is to compute which routed expert, by plain Python's rule."""
    pace = {serial: (entry, call) for serial, _, entry, call in runners.tolist()}
    team = {serial: team for serial, team, _, _ in runners.tolist()}
    experts, rows = np.unique(ids, return_counts=True)
    holder, cost, free = {}, dict.fromkeys(pace, 0), []
    for expert, count in zip(experts.tolist(), rows.tolist(), strict=True):
        first = holder[expert] = int(owner[expert])
        have = {first, int(also[expert])} & pace.keys() if len(also) else {first} & pace.keys()
        have |= {other for one in have if team[one] >= 0 for other in team if team[other] == team[one]}
        if first not in pace:
            continue
        if team[first] >= 0 or (len(also) and int(also[expert]) in pace):
            free.append((-count, expert, sorted(have)))
        else:
            cost[first] += 5 + count
    for minus_rows, expert, able in sorted(free):
        more, owns = 5 - minus_rows, holder[expert]

        def done(serial: int, more: int = more, owns: int = owns) -> tuple[int, bool, int]:
            entry, call = pace[serial]
            return 6 * call + (cost[serial] + more) * entry, serial != owns, serial

        holder[expert] = min(able, key=done)
        cost[holder[expert]] += more
    return holder


@given(routings(), some_runners(), st.data())
def test_what_several_have_is_shared_out_by_plain_pythons_rule(
    routing: tuple[I32, F32, I64], runners: I64, data: st.DataObject
) -> None:
    ids, weights, owner = routing
    also = data.draw(some_also(len(owner)))
    holder = shared_out(ids, owner, also, runners)
    planned = {
        (part.holder, *entry)
        for part in plan_layer(0, ids, weights, owner, also, runners)
        for entry in zip(part.expert.tolist(), part.row.tolist(), part.weight.tolist(), strict=True)
    }
    assert planned == {
        (holder[expert], expert, row, float(weights[row, j]))
        for row, routed in enumerate(ids.tolist())
        for j, expert in enumerate(routed)
    }


def test_two_of_a_team_get_as_much_as_they_are_fast_whoever_owns_it() -> None:
    ids, weights = np.array([[0, 2, 4, 6, 8, 10, 12, 14]], np.int32), np.ones((1, 8), np.float32)
    owner = np.arange(16, dtype=np.int64) % 2
    alike, unlike = np.array([[0, 0, 9, 0], [1, 0, 9, 0]], np.int64), np.array([[0, 0, 9, 0], [1, 0, 3, 0]], np.int64)
    assert lengths(plan_layer(0, ids, weights, owner, NOBODY_ELSE, alike)) == [(0, 4), (1, 4)]
    assert lengths(plan_layer(0, ids, weights, owner, NOBODY_ELSE, unlike)) == [(0, 2), (1, 6)]


def test_a_second_holder_takes_what_the_first_has_no_time_for() -> None:
    ids, weights = np.array([[0, 1, 2, 3]], np.int32), np.ones((1, 4), np.float32)
    owner, also = np.zeros(4, np.int64), np.array([LOCAL, LOCAL, 1, 1], np.int64)
    runners = np.array([[0, -1, 9, 0], [1, -1, 9, 0]], np.int64)
    parts = plan_layer(0, ids, weights, owner, also, runners)
    assert lengths(parts) == [(0, 2), (1, 2)]
    assert parts[1].expert.tolist() == [2, 3]
    distant = np.array([[0, -1, 9, 0], [1, -1, 9, 99]], np.int64)
    assert lengths(plan_layer(0, ids, weights, owner, also, distant)) == [(0, 4)]


@pytest.mark.parametrize("bad", [[[1, 0, 1, 0], [1, 0, 1, 0]], [[0, 0, 0, 0]], [[0, 0, 1, -1]], [[0, 0, 10**13, 0]]])
def test_runners_that_cannot_be_are_refused(bad: list[list[int]]) -> None:
    ids, weights = np.array([[0]], np.int32), np.ones((1, 1), np.float32)
    with pytest.raises(RequestError, match="layer 4, runners: "):
        plan_layer(4, ids, weights, np.zeros(1, np.int64), NOBODY_ELSE, np.array(bad, np.int64))


def lengths(parts: list[Part]) -> list[tuple[int, int]]:
    return [(part.holder, len(part)) for part in parts]


@given(routings(), some_runners(), st.data())
def test_a_part_planned_again_has_the_same_entries_and_places_by_who_has_them_now(
    routing: tuple[I32, F32, I64], runners: I64, data: st.DataObject
) -> None:
    ids, weights, owner = routing
    now, also = np.roll(owner, 1), data.draw(some_also(len(owner)))
    for part in plan_layer(0, ids, weights, owner):
        anew = part.again(now, itertools.count(1), also, runners)
        coverage = Coverage(ids.size)
        assert coverage.accept(part)
        assert all(not coverage.accept(one) for one in anew)
        assert sum(one.bits for one in anew) == part.bits
        assert [one.attempt for one in anew] == list(range(1, len(anew) + 1))
        assert len({one.holder for one in anew}) == len(anew)
        assert sorted(entry for one in anew for entry in entries(one)) == entries(part)
        for one in anew:
            assert [place for place in range(ids.size) if one.bits >> place & 1] == sorted(
                places(part)[entry] for entry in entries(one)
            )
            if not len(runners):
                assert (now[one.expert] == one.holder).all()


def entries(part: Part) -> list[tuple[int, int, float]]:
    return list(zip(part.expert.tolist(), part.row.tolist(), part.weight.tolist(), strict=True))


def places(part: Part) -> dict[tuple[int, int, float], int]:
    """Of a part of the first plan, whose places follow each other."""
    first = (part.bits & -part.bits).bit_length() - 1
    return {entry: first + at for at, entry in enumerate(entries(part))}


@given(routings())
def test_distinct_rows_name_just_the_rows_that_are_needed(routing: tuple[I32, F32, I64]) -> None:
    for part in plan_layer(0, *routing):
        rows, index = part.distinct_rows(len(routing[0]))
        assert rows.tolist() == sorted(set(part.row.tolist()))
        assert rows.dtype == index.dtype == np.int32
        np.testing.assert_array_equal(rows[index], part.row)


@given(routings())
def test_coverage_takes_each_part_once(routing: tuple[I32, F32, I64]) -> None:
    parts = plan_layer(0, *routing)
    coverage = Coverage(routing[0].size)
    for done, part in enumerate(parts):
        assert coverage.missing == sum(map(len, parts[done:]))
        assert part.bits.bit_count() == len(part)
        assert coverage.accept(part)
        assert not coverage.accept(part)
        assert not any(map(coverage.accept, part.again(routing[2], itertools.count(1))))
    assert coverage.missing == 0


def test_a_part_that_overlaps_is_refused_as_a_whole() -> None:
    (part,) = plan_layer(0, np.array([[0, 1, 2]], np.int32), np.ones((1, 3), np.float32), np.zeros(3, np.int64))
    coverage = Coverage(3)
    assert coverage.accept(replace(part, bits=0b001))
    assert not coverage.accept(part)
    assert coverage.missing == 2
    assert coverage.accept(replace(part, bits=0b110))
    assert coverage.missing == 0


def test_a_part_of_another_layer_does_not_fit() -> None:
    (part,) = plan_layer(0, np.array([[0, 1, 2]], np.int32), np.ones((1, 3), np.float32), np.zeros(3, np.int64))
    assert not Coverage(2).accept(part)


@given(routings(), st.data())
def test_new_attempts_are_the_same_entries_by_who_has_them_now(
    routing: tuple[I32, F32, I64], data: st.DataObject
) -> None:
    ids, _, owner = routing
    now = np.array(data.draw(st.lists(st.integers(LOCAL, 3), min_size=len(owner), max_size=len(owner))), np.int64)
    parts, attempts, coverage = plan_layer(0, *routing), itertools.count(5), Coverage(ids.size)
    for part in parts:
        others = part.again(now, attempts)
        assert [other.holder for other in others] == sorted({int(one) for one in now[part.expert]})
        entries = sorted(entry for other in others for entry in zip(other.expert, other.row, other.weight, strict=True))
        assert entries == list(zip(part.expert, part.row, part.weight, strict=True))
        for other in others:
            assert (now[other.expert] == other.holder).all()
            assert coverage.lacks(other)
            assert coverage.accept(other)
        assert not coverage.lacks(part)
    assert coverage.missing == 0
    assert next(attempts) >= 5 + len(parts)


def test_a_new_attempt_at_few_of_many_entries_has_their_bits() -> None:
    ids = np.arange(31 * MAX_ROWS, dtype=np.int32).reshape(-1, 31) % 31
    owner = np.zeros(31, np.int64)
    (part,) = plan_layer(0, ids, np.ones(ids.shape, np.float32), owner)
    owner[30] = 7
    most, few = part.again(owner, itertools.count(1))
    assert (few.holder, few.attempt, len(few)) == (7, 2, MAX_ROWS)
    assert few.bits == part.bits ^ most.bits
    assert few.bits == ((1 << MAX_ROWS) - 1) << (30 * MAX_ROWS)


@pytest.mark.parametrize("bad", [-1, 4, 2**31 - 1, -(2**31)])
def test_an_expert_that_does_not_exist_is_refused_by_layer_and_row(bad: int) -> None:
    ids = np.array([[0, 1], [2, bad]], np.int32)
    with pytest.raises(RequestError, match=rf"layer 5, row 1: routed to expert {bad}, 0 to 3 expected"):
        plan_layer(5, ids, np.ones((2, 2), np.float32), np.zeros(4, np.int64))


def test_an_expert_twice_in_a_row_is_refused_by_layer_and_row() -> None:
    ids = np.array([[0, 1], [3, 3]], np.int32)
    with pytest.raises(RequestError, match=r"layer 5, row 1: routed to expert 3 twice"):
        plan_layer(5, ids, np.ones((2, 2), np.float32), np.zeros(4, np.int64))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_weight_that_is_no_number_is_refused_by_layer_and_row(bad: float) -> None:
    weights = np.array([[1, 1], [1, bad]], np.float32)
    with pytest.raises(RequestError, match=r"layer 5, row 1: router weight"):
        plan_layer(5, np.array([[0, 1], [0, 1]], np.int32), weights, np.zeros(4, np.int64))


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (MAX_ROWS + 1, 1), (1, MAX_ENTRIES_PER_ROW + 1)])
def test_a_window_of_another_size_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(RequestError, match=r"layer 1: .* expected"):
        plan_layer(1, np.zeros(shape, np.int32), np.ones(shape, np.float32), np.zeros(4, np.int64))


def test_ids_and_weights_of_different_shapes_are_refused() -> None:
    with pytest.raises(RequestError, match=r"one same \(rows, k\) expected"):
        plan_layer(1, np.zeros((1, 2), np.int32), np.ones((2, 1), np.float32), np.zeros(4, np.int64))
