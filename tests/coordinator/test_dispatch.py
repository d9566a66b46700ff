"""The dispatcher against scripted workers: the sums are the same whatever they do, and what they do is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_examples import beat
from scripted_mesh import (
    EXPERTS,
    LAYERS,
    LIMITS,
    WIDTH,
    ScriptedMesh,
    Worker,
    answers_well,
    expected_sums,
    good_answer,
)

from coordinator.cluster import STRIKES
from protocol.errors import ExpertError, RequestError
from protocol.messages import F32, I32, Beat, BeatSeen, Message, RunExperts, Sums, WorkFailed

IDS = np.array([[0, 1, 2], [3, 1, 6], [7, 5, 4]], np.int32)
WEIGHTS = np.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125], [0.5, 0.375, 0.125]], np.float32)


def check(mesh: ScriptedMesh, ids: I32 = IDS, weights: F32 = WEIGHTS) -> None:
    """One layer more, with the right sums."""
    np.testing.assert_array_equal(mesh.run(ids, weights), expected_sums(ids, weights))


def failed(work: RunExperts) -> WorkFailed:
    return WorkFailed(
        session=work.session, step=work.step, layer=work.layer, attempt=work.attempt, expert=-1, reason="no"
    )


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
        lambda work: [failed(work)],
        lambda work: [good_answer(work), good_answer(work)],
        lambda work: [replace(good_answer(work), session="other"), good_answer(work)],
        lambda work: [replace(good_answer(work), attempt=1)],
        lambda work: [replace(good_answer(work), single_row=work.row[:0], single=np.empty((0, WIDTH), np.float32))],
    ]
    for worker in mesh.workers:
        worker.behaviour = data.draw(st.sampled_from(tricks))
    for _ in range(3):
        check(mesh, ids, weights)


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


def silent(work: RunExperts) -> list[Message]:
    return []


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
    poor.behaviour = lambda work: [failed(work)]
    check(mesh)
    poor.behaviour = answers_well
    check(mesh)
    assert mesh.cluster.counters.replans == 1
    assert mesh.cluster.counters.workers["worker-0"].calls == 1


@pytest.mark.parametrize(("workers", "others"), [(1, ()), (2, (1,)), (3, (1, 2))])
def test_a_worker_that_never_helps_is_left_out(workers: int, others: tuple[int, ...]) -> None:
    mesh = ScriptedMesh(workers)
    poor = mesh.workers[0]
    poor.behaviour = lambda work: [failed(work)]
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
    worker.behaviour, mesh.bank.broken = lambda work: [failed(work)], True
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
        worker.behaviour = lambda work: [failed(work)]
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
    first.behaviour = lambda work: [failed(work)]
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


def wrong_row(reply: Sums) -> Sums:
    return replace(reply, single_row=reply.single_row + np.int32(1), sum_row=reply.sum_row + np.int32(1))


def too_large(reply: Sums) -> Sums:
    return replace(reply, single=np.full_like(reply.single, 2.0**22), sum64=np.full_like(reply.sum64, 2**62))


def narrow(reply: Sums) -> Sums:
    return replace(reply, single=reply.single[:, 1:].copy(), sum64=reply.sum64[:, 1:].copy())


@pytest.mark.parametrize("spoil", [wrong_row, too_large, narrow])
def test_a_wrong_answer_is_dropped_and_its_part_computed_here(spoil: Callable[[Sums], Sums]) -> None:
    mesh = ScriptedMesh(2)
    mesh.workers[0].behaviour = lambda work: [spoil(good_answer(work))]
    check(mesh)
    assert mesh.cluster.counters.dropped == 1
    assert mesh.cluster.counters.replans == 1
    assert "worker-0" not in mesh.cluster.counters.workers


def test_a_second_answer_changes_nothing() -> None:
    mesh = ScriptedMesh(2)
    mesh.workers[0].behaviour = lambda work: [good_answer(work), good_answer(work)]
    check(mesh)
    check(mesh)
    assert mesh.cluster.counters.late_replies >= 1
    assert mesh.cluster.counters.workers["worker-0"].calls == 2


def other_session(reply: Sums) -> Sums:
    return replace(reply, session="old")


def other_step(reply: Sums) -> Sums:
    return replace(reply, step=reply.step + 7)


@pytest.mark.parametrize("spoil", [other_session, other_step])
def test_an_answer_to_something_never_asked_is_dropped_and_the_real_one_still_counts(
    spoil: Callable[[Sums], Sums],
) -> None:
    mesh = ScriptedMesh(2)
    mesh.workers[0].behaviour = lambda work: [spoil(good_answer(work)), good_answer(work)]
    check(mesh)
    assert mesh.cluster.counters.dropped == 1
    assert mesh.cluster.counters.local_entries == 0


def test_nobody_answers_for_another_worker() -> None:
    mesh = ScriptedMesh(2)
    liar, other = mesh.workers
    other.behaviour = silent
    mesh.waits = [lambda: liar.say(good_answer(other.work[-1])), lambda: other.say(good_answer(other.work[-1]))]
    check(mesh)
    assert mesh.cluster.counters.local_entries == 0
    assert mesh.cluster.counters.late_replies == 1
    assert {name: tally.calls for name, tally in mesh.cluster.counters.workers.items()} == {
        "worker-0": 1,
        "worker-1": 1,
    }


def test_the_answer_of_a_membership_that_is_over_is_late_and_its_sender_is_told_to_say_hello() -> None:
    mesh = ScriptedMesh(1)
    worker = mesh.workers[0]
    worker.behaviour = silent
    mesh.waits = [lambda: None, worker.say_hello]
    check(mesh)
    worker.say(good_answer(worker.work[-1]))
    worker.behaviour = answers_well
    mesh.settle()
    assert mesh.cluster.counters.late_replies == 1
    check(mesh)
    assert mesh.members.assignment.active.members == (1,)


def test_a_stranger_on_work_is_dropped_and_told_to_say_hello() -> None:
    mesh = ScriptedMesh(1)
    told: list[Message] = []
    mesh.work.peers[b"stranger"] = told.append
    reply = replace(good_answer(_some_work(mesh)), session="guess")
    mesh.work.inbox.append((b"stranger", reply))
    check(mesh)
    assert mesh.cluster.counters.dropped == 1
    assert [type(message).__name__ for message in told] == ["SayHello"]


def _some_work(mesh: ScriptedMesh) -> RunExperts:
    check(mesh)
    return mesh.workers[0].work[-1]


@pytest.mark.parametrize("socket", ["control", "work"])
def test_what_nobody_may_say_is_dropped(socket: str) -> None:
    mesh = ScriptedMesh(1)
    getattr(mesh, socket).inbox.append((mesh.workers[0].peer, BeatSeen(session="x")))
    check(mesh)
    assert mesh.cluster.counters.dropped == 1


def test_a_lost_answer_does_not_make_a_worker_suspect_for_ever() -> None:
    mesh = ScriptedMesh(2)
    worker = mesh.workers[0]
    worker.behaviour = silent
    check(mesh)
    worker.behaviour = answers_well
    for _ in range(2):
        worker.say_control(_beat(worker, mesh.steps))
    check(mesh)
    assert mesh.cluster.suspects() == set()
    check(mesh)
    assert mesh.cluster.counters.workers["worker-0"].calls == 2


def _beat(worker: Worker, step: int) -> Beat:
    return beat(token=worker.token, step=step, layer=0, calls=1)


def test_entries_are_conserved() -> None:
    mesh = ScriptedMesh(3)
    mesh.workers[0].behaviour = lambda work: [failed(work)] if work.step % 2 else [good_answer(work)]
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
