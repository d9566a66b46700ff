"""The coordinator's own slots beside its workers: when they are asked, waited for, and what is fetched from them."""

from __future__ import annotations

import numpy as np
import pytest
from scripted_answers import good_answer, silent
from scripted_mesh import IDS, WEIGHTS, ScriptedMesh, check

from protocol.errors import ExpertError

ENTRIES_OF_SLOTS = {0: 0, 2: 1, 8: 5, 16: 9}
"""How many of IDS a device with room for so many experts of two layers computes of one."""


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("slots", ENTRIES_OF_SLOTS)
def test_sums_do_not_depend_on_what_the_device_holds(workers: int, slots: int) -> None:
    mesh = ScriptedMesh(workers, slots=slots)
    for _ in range(2):
        check(mesh)
    counters, share = mesh.cluster.counters, 2 * ENTRIES_OF_SLOTS[slots]
    assert counters.device_entries == share
    others = sum(tally.entries for tally in counters.workers.values()) if workers else counters.local_entries
    assert others == 2 * IDS.size - share
    assert not (workers and counters.local_entries)


def test_the_device_begins_when_the_workers_have_been_asked_and_is_waited_for_at_last() -> None:
    mesh = ScriptedMesh(1, slots=8)
    assert mesh.slots is not None
    diary = mesh.slots.diary
    mesh.workers[0].behaviour = lambda work: diary.append("ask") or []  # type: ignore[func-returns-value]
    mesh.waits = [lambda: diary.append("wait"), lambda: mesh.workers[0].say(good_answer(mesh.workers[0].work[-1]))]
    check(mesh)
    assert diary == ["fetch", "ask", "launch", "wait", "check"]
    assert mesh.experts.times.summary()["device_p50_us"] == pytest.approx(10_000)


def test_rows_are_fetched_from_the_device_only_for_somebody_else_and_before_it_is_busy() -> None:
    ids, weights = np.array([[0, 3]], np.int32), np.ones((1, 2), np.float32)
    mesh = ScriptedMesh(0, slots=8)
    assert mesh.slots is not None
    check(mesh, ids, weights)
    assert mesh.slots.diary == ["launch", "check"]
    mesh.slots.diary.clear()
    check(mesh, ids + np.int32(1), weights)
    assert mesh.slots.diary == ["fetch", "launch", "check"]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_the_slots_cannot_compute_fails_by_name_and_the_next_layer_is_sound(workers: int) -> None:
    mesh = ScriptedMesh(workers, slots=8)
    assert mesh.slots is not None
    mesh.slots.broken = True
    with pytest.raises(ExpertError, match="layer 0, expert 0: the slots are broken"):
        mesh.run(IDS, WEIGHTS)
    assert mesh.cluster.counters.device_entries == 0
    mesh.slots.broken = False
    check(mesh)


def test_a_layer_that_fails_elsewhere_leaves_nothing_under_way_on_the_device() -> None:
    mesh = ScriptedMesh(0, slots=8)
    mesh.bank.broken = True
    with pytest.raises(ExpertError, match="the bank is broken"):
        mesh.run(IDS, WEIGHTS)
    mesh.bank.broken = False
    check(mesh)
    assert mesh.cluster.counters.device_entries == ENTRIES_OF_SLOTS[8]


def test_a_worker_lost_in_mid_layer_costs_the_device_nothing() -> None:
    mesh = ScriptedMesh(2, slots=8)
    check(mesh)
    mesh.workers[0].behaviour = silent
    mesh.waits = [mesh.workers[0].die]
    check(mesh)
    mesh.settle()
    check(mesh)
    assert mesh.cluster.counters.device_entries == 3 * ENTRIES_OF_SLOTS[8]
