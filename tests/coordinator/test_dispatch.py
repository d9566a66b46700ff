"""The dispatcher against scripted workers: the sums are the same whatever they do, and what they do is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_answers import answers_well, failed, good_answer, silent, wrong_row
from scripted_mesh import IDS, LIMITS, WEIGHTS, ScriptedMesh, check
from scripted_parts import EXPERTS, LAYERS, WIDTH

from coordinator.cluster import STRIKES
from protocol.errors import ExpertError, RequestError
from protocol.messages import Message, RunExperts


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 5])
def test_sums_do_not_depend_on_the_number_of_workers(workers: int) -> None:
    mesh = ScriptedMesh(workers)
    check(mesh)
    assert mesh.cluster.counters.local_entries == (0 if workers else IDS.size)
    assert all(len(worker.work) == 1 for worker in mesh.workers)
    assert sum(len(work.entry_expert) for worker in mesh.workers for work in worker.work) == IDS.size * bool(workers)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(0, 4), st.integers(1, 6))
def test_any_routing_is_covered_once_whoever_misbehaves(data: st.DataObject, workers: int, rows: int) -> None:
    k = data.draw(st.integers(1, EXPERTS))
    ids = np.array([data.draw(st.permutations(range(EXPERTS)))[:k] for _ in range(rows)], np.int32)
    weights = data.draw(st.integers(1, 16)) / np.float32(16) * np.ones((rows, k), np.float32)
    mesh = ScriptedMesh(workers, slots=data.draw(st.integers(0, LAYERS * EXPERTS)))
    tricks: list[Callable[[RunExperts], list[Message]]] = [
        answers_well,
        lambda work: [],
        lambda work: failed(work),
        lambda work: [good_answer(work), good_answer(work)],
        lambda work: [replace(good_answer(work), session="other"), good_answer(work)],
        lambda work: [replace(good_answer(work), attempt=1)],
        lambda work: [replace(good_answer(work), single_row=work.row[:0], single=np.empty((0, WIDTH), np.float32))],
    ]
    for worker in mesh.workers:
        worker.behaviour = data.draw(st.sampled_from(tricks))
    for _ in range(3):
        check(mesh, ids, weights)


def test_being_idle_is_not_waiting() -> None:
    mesh = ScriptedMesh(1)
    [worker] = mesh.workers
    worker.behaviour = lambda work: [replace(good_answer(work), wait_us=10**9 if len(worker.work) == 1 else 50)]
    mesh.cluster.busy_since = mesh.clock() - 0.25
    check(mesh)
    first_us = mesh.cluster.counters.workers["worker-0"].wait_us
    assert 250_000 <= first_us < 300_000
    check(mesh)
    assert mesh.cluster.counters.workers["worker-0"].wait_us == first_us + 50


def test_a_worker_gets_only_the_rows_it_needs() -> None:
    mesh = ScriptedMesh(2)
    check(mesh, np.array([[0, 2], [1, 3], [0, 3]], np.int32), np.ones((3, 2), np.float32) / 2)
    even, odd = (worker.work[0] for worker in mesh.workers)
    assert even.row.tolist() == [0, 2]
    assert even.codes.shape == (2, WIDTH)
    assert even.scales.shape == (2, WIDTH // 32)
    assert even.values.size == 0
    assert even.entry_expert.tolist() == [0, 0, 2]
    assert even.entry_row.tolist() == [0, 1, 0]
    assert odd.row.tolist() == [1, 2]
    assert even.placement == odd.placement == mesh.members.assignment.active.version


def test_bad_ids_are_refused_before_anybody_is_asked() -> None:
    mesh = ScriptedMesh(2)
    with pytest.raises(RequestError, match="layer 1, row 0: routed to expert 8"):
        mesh.run(np.array([[0, EXPERTS]], np.int32), np.ones((1, 2), np.float32), layer=1)
    assert not any(worker.work for worker in mesh.workers)
    check(mesh)


def test_nothing_new_is_begun_once_the_coordinator_stops() -> None:
    mesh = ScriptedMesh(1)
    mesh.cluster.closing = True
    with pytest.raises(RequestError, match="the coordinator is stopping"):
        mesh.run(IDS, WEIGHTS)
    assert not mesh.workers[0].work


def test_a_late_worker_costs_one_deadline_and_gets_nothing_until_its_answer_has_come() -> None:
    mesh = ScriptedMesh(2)
    check(mesh)
    slow, sound = mesh.workers
    slow.behaviour = silent
    began = mesh.clock.now
    check(mesh)
    assert mesh.clock.now - began == pytest.approx(LIMITS.floor_s, abs=0.1)
    began = mesh.clock.now
    check(mesh)
    assert mesh.clock.now - began < LIMITS.floor_s / 10
    assert (len(slow.work), len(sound.work)) == (2, 3)
    assert mesh.cluster.suspects() == {0}
    assert mesh.cluster.counters.replans == 1
    slow.behaviour = answers_well
    slow.say(good_answer(slow.work[-1]))
    check(mesh)
    assert mesh.cluster.counters.late_replies == 1
    assert mesh.cluster.counters.dropped == 0
    assert mesh.cluster.suspects() == set()
    assert len(slow.work) == 3


def test_what_a_late_or_dead_worker_would_compute_goes_to_its_team() -> None:
    mesh = ScriptedMesh(3, pages="same")
    check(mesh)
    assert all(worker.work for worker in mesh.workers)
    slow, dead, sound = mesh.workers
    slow.behaviour = silent
    check(mesh)
    assert mesh.cluster.counters.replans == 1
    check(mesh)
    assert len(slow.work) == 2
    dead.die()
    check(mesh)  # where that shows
    assert mesh.cluster.counters.replans == 2
    sound.work.clear()
    check(mesh)
    assert len(sound.work) == 1
    assert mesh.cluster.counters.local_entries == 0
    slow.behaviour = answers_well
    slow.say(good_answer(slow.work[-1]))
    check(mesh)
    assert len(slow.work) == 3


def test_an_answer_that_comes_during_the_wait_is_taken() -> None:
    mesh = ScriptedMesh(2)
    slow = mesh.workers[0]
    slow.behaviour = silent
    mesh.waits = [lambda: None, lambda: None, lambda: slow.say(good_answer(slow.work[-1]))]
    check(mesh)
    assert mesh.cluster.counters.local_entries == 0
    assert mesh.cluster.counters.workers["worker-0"].calls == 1


def test_a_worker_that_dies_while_it_is_waited_for_is_noticed_by_its_closed_connection() -> None:
    mesh = ScriptedMesh(2)
    check(mesh)
    victim = mesh.workers[0]
    victim.behaviour = silent
    mesh.waits = [victim.die]
    began = mesh.clock.now
    check(mesh)
    assert mesh.clock.now - began < LIMITS.floor_s / 2
    assert mesh.members.gone["worker-0"][1] == "its connection is closed or full"
    mesh.settle()
    check(mesh)
    assert mesh.cluster.counters.local_entries == len(victim.work[-1].entry_expert)
    assert mesh.members.assignment.active.members == (1,)


def test_a_worker_that_died_between_steps_costs_nothing() -> None:
    mesh = ScriptedMesh(2)
    mesh.workers[0].die()
    began = mesh.clock.now
    check(mesh)
    assert mesh.clock.now - began < LIMITS.floor_s / 10
    assert mesh.cluster.counters.replans == 1


def test_a_full_member_is_not_asked_for_what_it_gives_up_because_another_turned_out_to_be_gone() -> None:
    mesh = ScriptedMesh(2, room=EXPERTS * LAYERS // 2)
    check(mesh)
    dead, full = mesh.workers
    dead.die()  # which shows when it is asked, before the other one is
    full.work.clear()
    check(mesh)
    assert full.work == []
    assert mesh.cluster.counters.replans == 2
    mesh.settle()
    check(mesh)
    assert [work.entry_expert.tolist() for work in full.work] == [[0, 1, 1, 2, 3]]


def test_all_workers_dead_leaves_all_to_the_local_bank() -> None:
    mesh = ScriptedMesh(3)
    for worker in mesh.workers:
        worker.die()
    check(mesh)
    mesh.settle()
    check(mesh)
    assert mesh.cluster.counters.local_entries == 2 * IDS.size


def test_a_failed_call_is_computed_here_and_the_worker_goes_on() -> None:
    mesh = ScriptedMesh(2)
    poor = mesh.workers[0]
    poor.behaviour = lambda work: failed(work)
    check(mesh)
    poor.behaviour = answers_well
    check(mesh)
    assert mesh.cluster.counters.replans == 1
    assert mesh.cluster.counters.workers["worker-0"].calls == 1


@pytest.mark.parametrize(("workers", "others"), [(1, ()), (2, (1,)), (3, (1, 2))])
def test_a_worker_that_never_helps_is_left_out(workers: int, others: tuple[int, ...]) -> None:
    mesh = ScriptedMesh(workers)
    poor = mesh.workers[0]
    poor.behaviour = lambda work: failed(work)
    for _ in range(STRIKES):
        check(mesh)
    check(mesh)  # at once, not only when the others are ready to hold what it held
    mesh.settle()
    check(mesh)
    assert len(poor.work) == STRIKES
    assert mesh.members.assignment.active.members == others


def test_nobody_is_left_out_for_what_the_local_bank_cannot_compute_either() -> None:
    mesh = ScriptedMesh(1)
    [worker] = mesh.workers
    worker.behaviour, mesh.bank.broken = lambda work: failed(work), True
    for _ in range(2 * STRIKES):
        with pytest.raises(ExpertError, match="the bank is broken"):
            mesh.run(IDS, WEIGHTS)
    worker.behaviour = answers_well
    check(mesh)
    assert len(worker.work) == 2 * STRIKES + 1
    assert mesh.bank.calls == []
    assert mesh.members.assignment.active.members == (0,)


def test_what_nobody_can_compute_fails_by_name_and_the_next_layer_is_sound() -> None:
    mesh = ScriptedMesh(2)
    for worker in mesh.workers:
        worker.behaviour = lambda work: failed(work)
    mesh.bank.broken = True
    with pytest.raises(ExpertError, match="the bank is broken"):
        mesh.run(IDS, WEIGHTS)
    mesh.bank.broken = False
    for worker in mesh.workers:
        worker.behaviour = answers_well
    check(mesh)
    check(mesh)


def test_answers_to_a_layer_that_failed_are_late() -> None:
    mesh = ScriptedMesh(2)
    first, second = mesh.workers
    first.behaviour = lambda work: failed(work)
    second.behaviour = silent
    mesh.bank.broken = True
    with pytest.raises(ExpertError):
        mesh.run(IDS, WEIGHTS)
    assert mesh.cluster.suspects() == {1}
    mesh.bank.broken = False
    second.say(good_answer(second.work[-1]))
    first.behaviour = second.behaviour = answers_well
    check(mesh)
    assert mesh.cluster.counters.late_replies == 1


def test_entries_are_conserved() -> None:
    mesh = ScriptedMesh(3)
    mesh.workers[0].behaviour = lambda work: failed(work) if work.step % 2 else [good_answer(work)]
    mesh.workers[1].behaviour = lambda work: [wrong_row(good_answer(work))] if work.step % 3 else [good_answer(work)]
    for _ in range(12):
        check(mesh)
    counters = mesh.cluster.counters
    assert counters.local_entries + sum(tally.entries for tally in counters.workers.values()) == 12 * IDS.size


def test_times_of_a_layer_add_up() -> None:
    mesh = ScriptedMesh(2)
    for _ in range(5):
        check(mesh)
    summary = mesh.experts.times.summary()
    assert summary["layers"] == 5
    assert summary["overhead_p50_us"] == pytest.approx(summary["total_p50_us"] - summary["kernel_p50_us"])
