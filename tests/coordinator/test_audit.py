"""Comparing sums bit by bit, and saying which expert is to blame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scripted_answers import answers_well, good_answer
from scripted_mesh import ScriptedMesh
from scripted_parts import WIDTH, Bank, expected_sums

import native
from coordinator.audit import Auditor, difference
from protocol.messages import F32, I32, Message, RunExperts

EXPERT = np.array([1, 1, 4, 7], np.int32)
ROW = np.array([0, 2, 1, 2], np.int32)
IDS: I32 = np.array([[0, 1, 2], [3, 1, 6], [7, 5, 4]], np.int32)
WEIGHTS: F32 = np.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125], [0.5, 0.375, 0.125]], np.float32)


@pytest.mark.parametrize(
    ("rows", "suspects"),
    [
        ([0], (1,)),  # row 2, which it is in too, came out right: nobody else is in row 0
        ([1], (4,)),
        ([2], (7,)),  # 1 is good in row 0
        ([0, 2], (1,)),
        ([0, 1], (1, 4)),
        ([0, 1, 2], (1, 4, 7)),
    ],
)
def test_whom_rows_that_differ_point_at(rows: list[int], suspects: tuple[int, ...]) -> None:
    ours = np.arange(3 * 8, dtype=np.int64).reshape(3, 8)
    theirs = ours.copy()
    theirs[rows, 3] ^= 1
    found = difference(5, EXPERT, ROW, ours, theirs)
    assert found is not None
    assert (found.layer, found.experts) == (5, suspects)
    assert found.ours != found.theirs
    assert found.ours in found.in_words()
    assert found.theirs in found.in_words()
    assert "layer 5" in found.in_words()


def test_equal_bits_are_no_difference() -> None:
    ours = np.arange(24, dtype=np.int64).reshape(3, 8)
    assert difference(0, EXPERT, ROW, ours, ours.copy()) is None


def test_many_suspects_are_not_all_named() -> None:
    ours = np.zeros((1, 8), np.int64)
    found = difference(0, np.arange(30, dtype=np.int32), np.zeros(30, np.int32), ours, ours + 1)
    assert found is not None
    assert "one of experts 0, 1, 2, 3, 4, 5, 6, 7, ...: digest" in found.in_words()


def auditor(mesh: ScriptedMesh, rate: float, chances: list[float] | None = None) -> Auditor:
    bank: Any = mesh.bank
    layout: Any = mesh.experts
    layout.width = WIDTH
    drawn = iter(chances or [])
    return Auditor(bank, layout, rate, (lambda: next(drawn)) if chances else None)


def audited(workers: int, rate: float, chances: list[float] | None = None) -> ScriptedMesh:
    mesh = ScriptedMesh(workers)
    mesh.experts._auditor = auditor(mesh, rate, chances)
    return mesh


def test_the_share_of_answers_that_was_asked_for_is_looked_at() -> None:
    bank: Any = Bank()
    layout: Any = type("Layout", (), {"width": WIDTH})
    chances = iter([0.0, 0.24, 0.25, 0.9])
    one = Auditor(bank, layout, 0.25, lambda: next(chances))
    assert [one.due() for _ in range(4)] == [True, True, False, False]
    assert not any(Auditor(bank, layout, 0.0).due() for _ in range(100))
    assert all(Auditor(bank, layout, 1.0).due() for _ in range(100))
    rows = native.Rows(np.zeros((3, WIDTH), np.float32))
    ids = np.array([[1, 2], [0, 5], [1, 7]], np.int32)
    weights = np.full(ids.shape, 0.5, np.float32)
    order = np.argsort(ids.ravel(), kind="stable")
    row = np.repeat(np.arange(3, dtype=np.int32), 2)[order]
    sums = one.sums(0, rows, ids.ravel()[order], row, weights.ravel()[order])
    np.testing.assert_array_equal(sums, expected_sums(ids, weights))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_sound_workers_are_audited_and_nothing_changes(workers: int) -> None:
    mesh = audited(workers, 1.0)
    for _ in range(3):
        np.testing.assert_array_equal(mesh.run(IDS, WEIGHTS), expected_sums(IDS, WEIGHTS))
    assert mesh.cluster.counters.audits == 3 * workers
    assert mesh.cluster.counters.local_entries == 0
    assert not any(member.failed for member in mesh.members)


def flips(work: RunExperts) -> list[Message]:
    """A good answer but for one bit."""
    reply = good_answer(work)
    for array in (reply.single.view(np.int32), reply.sum64):
        if array.size:
            array.flat[-1] ^= 1
            break
    return [reply]


def test_one_wrong_bit_is_found_ours_is_taken_and_the_worker_is_out_in_this_life() -> None:
    mesh = audited(2, 1.0)
    bad, good = mesh.workers
    bad.behaviour = flips
    np.testing.assert_array_equal(mesh.run(IDS, WEIGHTS), expected_sums(IDS, WEIGHTS))
    [member] = [one for one in mesh.members if one.name == bad.name]
    assert member.quarantined
    assert "quarantined: its bits differ: layer 0, " in member.failed
    assert mesh.cluster.counters.worker(bad.name).calls == 0
    assert mesh.cluster.counters.local_entries + mesh.cluster.counters.worker(good.name).entries == IDS.size
    asked = len(bad.work)
    bad.behaviour = answers_well
    bad.say_hello()  # the same life, whatever it says
    mesh.settle()
    np.testing.assert_array_equal(mesh.run(IDS, WEIGHTS), expected_sums(IDS, WEIGHTS))
    [member] = [one for one in mesh.members if one.name == bad.name]
    assert "quarantined" in member.failed
    assert len(bad.work) == asked
    bad.incarnation = "another life"
    bad.say_hello()
    mesh.settle()
    bad.say_hello()  # its name is free once the former life is given up
    mesh.settle()


def test_what_is_still_to_come_of_a_quarantined_worker_is_computed_here() -> None:
    """Both halves of a window are asked of it; the first answer is audited."""
    mesh = audited(1, 0.5, [0.0, 0.9])
    bad = mesh.workers[0]
    bad.behaviour = lambda work: []
    first, second = mesh.begin(IDS, WEIGHTS), mesh.begin(IDS, WEIGHTS)
    bad.say(*(answer for work in bad.work for answer in flips(work)))
    for begun in (first, second):
        np.testing.assert_array_equal(mesh.finish(begun), expected_sums(IDS, WEIGHTS))
    assert mesh.cluster.counters.audits == 1
    assert mesh.cluster.counters.local_entries == 2 * IDS.size


def test_who_cannot_be_judged_is_believed() -> None:
    mesh = audited(1, 1.0)
    mesh.bank.broken = True
    np.testing.assert_array_equal(mesh.run(IDS, WEIGHTS), expected_sums(IDS, WEIGHTS))
    assert mesh.cluster.counters.audits == 0
