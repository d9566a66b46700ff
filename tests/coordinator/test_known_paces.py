"""What is known of everybody's pace: calls count more than trials, and newcomers are judged by the same measure."""

from __future__ import annotations

import numpy as np
import pytest
from message_examples import beat, hello

from coordinator.known_paces import known_paces
from coordinator.member import BUSY_S, MAX_CALL_S, UNKNOWN_CALL_S, Member
from coordinator.pace import NOTICEABLE_S, Pace, farther_s
from protocol.messages import Beat


def member(
    serial: int,
    entry_ns: int,
    pace: Pace | None = None,
    told: Beat | None = None,
    host: str = "",
    role: str = "worker",
) -> Member:
    said = hello(name=str(serial), entry_ns=entry_ns, host=host or f"box-{serial}", role=role)
    return Member(serial=serial, hello=said, token="", control=b"", pace=pace, beat=told)


def test_by_its_trial_until_its_calls_were_timed() -> None:
    assert known_paces([member(1, 5000), member(2, 0)]) == {1: Pace(entry_s=5e-6, call_s=UNKNOWN_CALL_S)}
    seen = Pace(entry_s=8e-6, call_s=1e-3)
    assert known_paces([member(1, 5000, seen)]) == {1: seen}


def test_a_newcomer_is_as_much_slower_than_its_trial_as_the_others_and_as_near_as_the_nearest() -> None:
    there = [
        member(1, 1000, Pace(entry_s=3e-6, call_s=2e-3)),
        member(2, 1000, Pace(entry_s=3e-6, call_s=1e-3)),
        member(3, 0, Pace(entry_s=9e-6, call_s=4e-3)),
        member(4, 2000),
    ]
    assert known_paces(there)[4] == Pace(entry_s=pytest.approx(6e-6), call_s=1e-3)


def test_gpus_and_processors_are_each_judged_by_their_own_kind() -> None:
    workers = [member(1, 1000, Pace(entry_s=3e-6, call_s=2e-3)), member(2, 4000)]
    peers = [member(3, 100, Pace(entry_s=1.2e-7, call_s=1e-3), role="peer"), member(4, 200, role="peer")]
    known = known_paces([*workers, *peers])
    assert known[2] == Pace(entry_s=pytest.approx(12e-6), call_s=1e-3)
    assert known[4] == Pace(entry_s=pytest.approx(2.4e-7), call_s=1e-3)
    assert known_paces([workers[0], peers[1]])[4].entry_s == pytest.approx(2e-7)


def test_those_who_are_alike_on_one_machine_have_one_pace_but_for_whoever_is_much_slower() -> None:
    paces = [Pace(entry_s=entry_s, call_s=1e-3) for entry_s in (1e-3, 2e-3, 1.5e-3, 9e-3)]
    there = [member(serial, 1000, pace, host="box") for serial, pace in enumerate(paces)]
    assert known_paces(there) == dict.fromkeys(range(3), paces[2]) | {3: paces[3]}
    apart = [member(serial, 1000, pace) for serial, pace in enumerate(paces)]
    assert known_paces(apart) == dict(enumerate(paces))
    copies = [
        member(0, 1000, paces[0], beat(source="copies"), "box"),
        member(1, 1000, paces[1], beat(source="direct"), "box"),
    ]
    assert known_paces(copies) == dict(enumerate(paces[:2]))


@pytest.mark.parametrize(("round_trip_us", "far_s"), [(-1, 0.0), (20_000, 0.0), (120_000, 0.1), (2**62, MAX_CALL_S)])
def test_a_beats_round_trip_tells_who_is_far_away(round_trip_us: int, far_s: float) -> None:
    (pace,) = known_paces([member(1, 1000, told=beat(round_trip_us=round_trip_us))]).values()
    assert pace.call_s == pytest.approx(UNKNOWN_CALL_S + far_s)
    assert BUSY_S == 0.02


def test_calls_are_alike_unless_they_differ_by_more_than_they_vary() -> None:
    assert farther_s(np.array([1e-3, 1.5e-3 + NOTICEABLE_S, 3e-3])).tolist() == pytest.approx(
        [0.0, 0.0, 1.5e-3 - NOTICEABLE_S]
    )
    assert farther_s(np.empty(0)).tolist() == []
