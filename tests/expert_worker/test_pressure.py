"""When RAM copies are given up, and that this neither oscillates nor gives up what is not needed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expert_worker.pressure import CALM_S, Reading, State, decide, room_to_grow

MIB = 1 << 20
GIB = 1 << 30
LIMIT = 8 * GIB  # of which 256 MiB are to stay free


def reading(at_s: float, room: int | None, limit: int | None = LIMIT, some: float = 0, full: float = 0) -> Reading:
    """`room` in MiB; `some` and `full` in seconds so far."""
    return Reading(
        at_s=at_s,
        limit=limit,
        room=None if room is None else room * MIB,
        some_us=int(some * 1e6),
        full_us=int(full * 1e6),
    )


def sheds(readings: list[Reading], copied: int = 4 * GIB, carried_out: bool = True) -> list[int]:
    """MiB given up after each reading."""
    state, each = State(), []
    for one in readings:
        state, shed, _ = decide(state, one, copied)
        copied -= shed if carried_out else 0
        each.append(shed // MIB)
    return each


@pytest.mark.parametrize(
    ("limit", "reserve"),
    [(None, 64), (64 * MIB, 8), (GIB, 64), (2 * GIB, 64), (8 * GIB, 256), (32 * GIB, 1024), (512 * GIB, 1024)],
)
def test_what_is_to_stay_free(limit: int | None, reserve: int) -> None:
    assert reading(0, 0, limit).reserve == reserve * MIB


@pytest.mark.parametrize(
    ("rooms", "expected"),
    [
        ([4096, 1024, 300, 256], [0, 0, 0, 0]),
        ([4096, 255, 255], [0, 0, 1 + 64]),
        ([4096, 200, 300, 200], [0, 0, 0, 0]),  # not twice in a row
        ([4096, 200, 190], [0, 0, 66 + 64]),
        ([4096, 127], [0, 129 + 64]),  # less than half: at once
        ([4096, -100], [0, 356 + 64]),
        ([100], [156 + 64]),
        ([4096, -8192], [0, 4096]),  # all there is
    ],
)
def test_little_room(rooms: list[int], expected: list[int]) -> None:
    assert sheds([reading(second, room) for second, room in enumerate(rooms)]) == expected


def test_what_is_being_given_up_is_not_given_up_twice() -> None:
    readings = [reading(0, 100), reading(1, 100), reading(2, 100)]
    assert sheds(readings, carried_out=False) == [220, 0, 0]
    readings[1:] = [reading(1, 50), reading(2, 50)]  # even less than was known at first
    assert sheds(readings, carried_out=False) == [220, 0, 0]
    readings[1:] = [reading(1, -500)]
    assert sheds(readings, carried_out=False) == [220, 256 - (-500 + 220) + 64]


def test_what_was_to_be_given_up_and_was_not_is_given_up_again() -> None:
    readings = [reading(second, 100) for second in range(12)]
    assert sheds(readings, carried_out=False) == [220] + [0] * 9 + [220, 0]


def test_a_limit_that_falls_is_answered_at_once_by_what_is_missing() -> None:
    before, after = reading(0, 1000), reading(1, 200)
    assert sheds([before, after]) == [0, 0]
    fallen = reading(1, 200, limit=LIMIT - GIB)  # 224 MiB are to stay free
    assert sheds([before, fallen]) == [0, 24 + 56]
    _, _, reason = decide(decide(State(), before, GIB)[0], fallen, GIB)
    assert reason == "the memory limit fell from 8 GiB to 7 GiB, 200 MiB of it are left"
    assert sheds([before, reading(1, 1000, limit=LIMIT - GIB)]) == [0, 0]


def test_a_reason_says_what_was_found() -> None:
    assert decide(State(), reading(0, 100), GIB)[2] == "memory is short: the limit is 8 GiB, 100 MiB of it are left"
    assert decide(State(), reading(0, -100), GIB)[2].endswith("8 GiB, 100 MiB too many are in use")
    assert decide(State(), reading(0, 100), 0)[1:] == (0, "")


@pytest.mark.parametrize(
    ("room", "some", "full", "expected"),
    [
        (380, 0.29, 0.09, [0, 0, 0, 0]),
        (380, 0.4, 0.0, [0, 0, 256, 0]),
        (380, 0.1, 0.2, [0, 0, 256, 0]),
        (384, 0.9, 0.9, [0, 0, 0, 0]),  # once and a half the reserve: they wait for files
        (None, 0.4, 0.0, [0, 0, 256, 0]),
    ],
)
def test_waiting_for_memory(room: int | None, some: float, full: float, expected: list[int]) -> None:
    readings = [reading(second, room, some=second * some, full=second * full) for second in range(4)]
    assert sheds(readings) == [shed if room is not None else shed and 256 for shed in expected]


def test_waiting_sheds_every_few_seconds_only() -> None:
    readings = [reading(second, 380, some=second) for second in range(15)]
    assert [second for second, shed in enumerate(sheds(readings)) if shed] == [2, 7, 12]


@pytest.mark.parametrize(
    "second",
    [
        Reading(at_s=1, limit=LIMIT, room=380 * MIB),
        Reading(at_s=1, limit=LIMIT, room=380 * MIB, some_us=0, full_us=0),
        Reading(at_s=0, limit=LIMIT, room=380 * MIB, some_us=10**9, full_us=10**9),
    ],
    ids=["missing", "gone back", "of the same moment"],
)
def test_counters_that_say_nothing(second: Reading) -> None:
    first = Reading(at_s=0, limit=LIMIT, room=380 * MIB, some_us=5 * 10**6, full_us=5 * 10**6)
    assert sheds([first, second, second]) == [0, 0, 0]


def test_nothing_known_is_no_reason() -> None:
    nothing = [Reading(at_s=second, limit=None, room=None) for second in range(5)]
    assert sheds(nothing) == [0] * 5


def test_copies_grow_only_after_long_calm_and_wait_longer_each_time() -> None:
    state, copied, now, waits = State(), 4 * GIB, 0.0, []
    for _ in range(4):
        state, shed, _ = decide(state, reading(now, 100), copied)
        copied -= shed
        assert room_to_grow(state) == 0
        begin = now
        while not room_to_grow(state):
            now += 1
            state, shed, _ = decide(state, reading(now, 3000), copied)
            assert shed == 0
            assert now < 10_000
        assert room_to_grow(state) == (3000 - 1024) * MIB
        waits.append(now - begin - 1)
        now += CALM_S
    assert waits == [60, 120, 240, 480]


SIZES = st.integers(0, 16 * GIB)
READINGS = st.lists(
    st.builds(
        Reading,
        at_s=st.floats(0, 1e6),
        limit=st.none() | SIZES,
        room=st.none() | st.integers(-16 * GIB, 16 * GIB),
        some_us=st.none() | st.integers(0, 10**12),
        full_us=st.none() | st.integers(0, 10**12),
    ),
    max_size=20,
)


@given(READINGS, SIZES)
def test_never_below_zero_and_never_more_than_there_is(readings: list[Reading], copied: int) -> None:
    state = State()
    for one in sorted(readings, key=lambda each: each.at_s):
        state, shed, reason = decide(state, one, copied)
        assert 0 <= shed <= copied
        assert bool(shed) == bool(reason)
        assert room_to_grow(state) >= 0
        copied -= shed
        if one.room is not None and one.room >= 4 * one.reserve:
            assert shed == 0


@given(st.integers(-8192, 8192), st.integers(0, 4096), st.integers(1, 4096))
def test_less_room_never_sheds_less(room: int, less: int, copied: int) -> None:
    (more,), (fewer,) = (sheds([reading(0, each)], copied * MIB) for each in (room - less, room))
    assert more >= fewer


@settings(max_examples=50)
@given(limits=st.lists(st.integers(256, 8192), min_size=1, max_size=5), others=st.integers(0, 4096), each=st.booleans())
def test_in_a_world_that_stays_as_it_is_copies_settle(limits: list[int], others: int, each: bool) -> None:
    """Limits (MiB) come one after the other, each for four minutes. The worker wants 4 GiB of copies."""
    state, copied, now = State(), 4 * GIB, 0
    for limit in limits:
        changes = []
        for _ in range(240):
            now += 1
            room = limit - others - copied // MIB
            state, shed, _ = decide(state, reading(now, room, limit=limit * MIB), copied)
            grown = min(room_to_grow(state), 4 * GIB - copied) if each else 0
            assert not (shed and grown)
            copied += grown - shed
            changes += [shed - grown] if shed or grown else []
        reserve = reading(0, 0, limit=limit * MIB).reserve
        assert copied == 0 or (limit - others) * MIB - copied >= reserve - MIB
        assert len([change for change in changes if change > 0]) <= 2
        assert all(after < 0 for after in changes[1:]), "after growing nothing is given up"
