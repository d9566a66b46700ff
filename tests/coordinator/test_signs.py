"""Frozen, busy, held up: told apart by what beats say, and by whether they come."""

from __future__ import annotations

import pytest
from bare_members import TERMS, beat, join, members, pass_time, say

from coordinator.report import mesh_report
from coordinator.signs import sign_of
from coordinator.tallies import Counters

S = 10**6


@pytest.mark.parametrize(
    ("working_us", "cpu_us", "word", "why"),
    [
        (0, (0, 0), "idle", ""),
        (S // 2, (0, 0), "busy", ""),
        (3 * S, (S, S + S // 4), "busy", "it has computed the work in hand for 3.0 s"),
        (3 * S, (S, S + S // 100), "stuck", "it has had the work in hand for 3.0 s and computes nothing"),
        (3 * S, (S, 0), "stuck", "it has had the work in hand for 3.0 s and computes nothing"),
        (-1, (0, 0), "idle", ""),
    ],
)
def test_what_two_beats_say(working_us: int, cpu_us: tuple[int, int], word: str, why: str) -> None:
    mesh = members()
    member, _ = join(mesh, "a")
    assert sign_of(member, TERMS.beat_s).word == "idle"
    for turn, used in enumerate(cpu_us):
        say(mesh, member, beat(member.token, working_us=working_us, cpu_us=used), 0.5 * turn)
    sign = sign_of(member, TERMS.beat_s)
    assert sign.word == word
    assert sign.why.startswith(why)
    assert bool(sign.why) == bool(why)


def test_the_first_beat_of_all_says_nothing_of_processor_time() -> None:
    mesh = members()
    member, _ = join(mesh, "a")
    say(mesh, member, beat(member.token, working_us=9 * S, cpu_us=5 * S), 1.0)
    assert sign_of(member, TERMS.beat_s).word == "busy"


def test_one_that_is_not_heard_is_frozen_whatever_it_said_last() -> None:
    mesh = members()
    member, _ = join(mesh, "a")
    say(mesh, member, beat(member.token, working_us=3 * S))
    pass_time(mesh, 0.0, 1.2)
    assert sign_of(member, TERMS.beat_s).word == "busy"
    pass_time(mesh, 1.3, 0.2)
    assert sign_of(member, TERMS.beat_s).word == "frozen"
    (row,) = mesh_report(mesh, Counters(), (), 0.0)["workers"]
    assert (row["sign"], row["why"]) == ("frozen", "nothing was heard of it for 1.5 s: it is stopped, or its link is")
    mesh.heard_work(member)
    assert sign_of(member, TERMS.beat_s).word == "busy"
