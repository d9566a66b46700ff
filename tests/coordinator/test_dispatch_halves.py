"""Two layers under way at once, those of a window's halves: whatever workers do to either, both have the right sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_examples import beat
from scripted_answers import answers_well, failed, good_answer, silent
from scripted_mesh import LIMITS, Begun, ScriptedMesh
from scripted_parts import EXPERTS, LAYERS, WIDTH, expected_sums

from protocol.errors import ExpertError
from protocol.messages import F32, I32, Message, RunExperts

HALVES = (
    (np.array([[0, 1, 2], [3, 1, 6]], np.int32), np.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]], np.float32)),
    (np.array([[7, 5, 4], [2, 0, 1]], np.int32), np.array([[0.5, 0.375, 0.125], [0.25, 0.5, 0.25]], np.float32)),
)
ENTRIES = sum(ids.size for ids, _ in HALVES)


class PingPong:
    """A window whose halves take turns."""

    def __init__(self, mesh: ScriptedMesh) -> None:
        self.mesh = mesh
        self._begun: list[Begun | None] = [None, None]

    def begin(self, half: int, ids: I32 | None = None, weights: F32 | None = None) -> None:
        given_ids, given_weights = HALVES[half]
        self._inputs = ids if ids is not None else given_ids, weights if weights is not None else given_weights
        self._begun[half] = self.mesh.begin(*self._inputs)

    def finish(self, half: int) -> None:
        """With the right sums."""
        begun = self._begun[half]
        assert begun is not None
        np.testing.assert_array_equal(self.mesh.finish(begun), expected_sums(*HALVES[half]))
        self._begun[half] = None

    def layers(self, count: int) -> None:
        """So many, of both halves, one behind the other."""
        for layer in range(count):
            for half in (0, 1):
                if layer:
                    self.finish(half)
                self.begin(half)
        self.finish(0)
        self.finish(1)


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("slots", [0, 8, 16])
def test_sums_do_not_depend_on_who_computes(workers: int, slots: int) -> None:
    mesh = ScriptedMesh(workers, slots=slots)
    PingPong(mesh).layers(3)
    counters = mesh.cluster.counters
    theirs = sum(tally.entries for tally in counters.workers.values())
    assert counters.local_entries + counters.device_entries + theirs == 3 * ENTRIES
    assert not (workers and counters.local_entries)
    assert bool(slots) == bool(counters.device_entries)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_both_halves_are_covered_once_whoever_misbehaves(data: st.DataObject, workers: int) -> None:
    mesh = ScriptedMesh(workers, slots=data.draw(st.integers(0, LAYERS * EXPERTS)))
    tricks: list[Callable[[RunExperts], list[Message]]] = [
        answers_well,
        silent,
        lambda work: failed(work),
        lambda work: [good_answer(work), good_answer(work)],
        lambda work: [replace(good_answer(work), step=work.step - 1), good_answer(work)],
        lambda work: [replace(good_answer(work), step=work.step + 1)],
        lambda work: [replace(good_answer(work), single_row=work.row[:0], single=np.empty((0, WIDTH), np.float32))],
        lambda work: [good_answer(work)] if work.step % 2 else [],
        lambda work: [] if work.step % 2 else failed(work),
    ]
    for worker in mesh.workers:
        worker.behaviour = data.draw(st.sampled_from(tricks))
    happens: list[Callable[[], None]] = [lambda: None, *(worker.die for worker in mesh.workers)]
    mesh.waits = [data.draw(st.sampled_from(happens))]
    PingPong(mesh).layers(4)


def test_both_calls_are_sent_before_either_is_answered() -> None:
    mesh = ScriptedMesh(1)
    [worker] = mesh.workers
    worker.behaviour = silent
    window = PingPong(mesh)
    window.begin(0)
    window.begin(1)
    assert [work.step for work in worker.work] == [1, 2]
    worker.say(*map(good_answer, worker.work))
    window.finish(0)
    window.finish(1)
    assert mesh.cluster.counters.workers["worker-0"].calls == 2
    assert mesh.cluster.counters.local_entries == 0


def test_an_answer_to_the_other_half_is_taken_while_this_one_is_waited_for() -> None:
    mesh = ScriptedMesh(2)
    slow, fast = mesh.workers
    slow.behaviour = silent
    window = PingPong(mesh)
    window.begin(0)
    window.begin(1)
    mesh.waits = [lambda: None, lambda: slow.say(*map(good_answer, slow.work))]
    window.finish(0)
    began = mesh.clock.now
    window.finish(1)
    assert mesh.clock.now == began
    assert mesh.cluster.counters.local_entries == 0
    assert len(fast.work) == 2


def test_the_local_share_is_computed_when_all_has_been_sent() -> None:
    mesh = ScriptedMesh(2)
    for worker in mesh.workers:
        worker.behaviour = lambda work: failed(work)
    window = PingPong(mesh)
    window.begin(0)
    window.begin(1)
    assert mesh.bank.calls == []
    window.finish(0)
    window.finish(1)
    assert mesh.cluster.counters.local_entries == ENTRIES


def test_a_frozen_worker_costs_one_deadline_for_both_halves() -> None:
    mesh = ScriptedMesh(2)
    window = PingPong(mesh)
    window.layers(1)
    frozen, sound = mesh.workers
    frozen.behaviour = silent
    began = mesh.clock.now
    window.layers(3)
    assert mesh.clock.now - began == pytest.approx(LIMITS.floor_s, abs=0.15)
    assert mesh.cluster.suspects() == {0}
    assert (len(frozen.work), len(sound.work)) == (4, 8)
    assert mesh.cluster.counters.replans == 2
    frozen.behaviour = answers_well
    frozen.say(good_answer(frozen.work[-2]))
    window.layers(1)
    assert len(frozen.work) == 4  # one answer is still to come
    frozen.say(good_answer(frozen.work[-1]))
    window.layers(1)
    assert mesh.cluster.counters.late_replies == 2
    assert mesh.cluster.suspects() == set()
    assert len(frozen.work) == 6


def test_a_second_call_is_not_late_for_what_the_first_one_took() -> None:
    """Each is answered well after half its own limit, which for the second begins when the first is answered."""
    mesh = ScriptedMesh(1)
    [worker] = mesh.workers
    window = PingPong(mesh)
    window.layers(10)
    worker.behaviour = silent
    worker.work.clear()
    window.begin(0)
    window.begin(1)
    for half in (0, 1):
        due = mesh.clock.now + 0.7 * LIMITS.floor_s

        def answer_when_due(half: int = half, due: float = due) -> None:
            if mesh.clock.now >= due:
                worker.say(good_answer(worker.work[half]))
            else:
                mesh.waits.insert(0, answer_when_due)

        mesh.waits = [answer_when_due]
        window.finish(half)
    assert mesh.cluster.counters.replans == 0
    assert mesh.cluster.counters.local_entries == 0


def test_a_worker_that_dies_with_two_calls_is_noticed_by_its_closed_connection() -> None:
    mesh = ScriptedMesh(2)
    window = PingPong(mesh)
    window.layers(1)
    victim = mesh.workers[0]
    victim.behaviour = silent
    mesh.waits = [victim.die]
    began = mesh.clock.now
    window.layers(2)
    assert mesh.clock.now - began < LIMITS.floor_s / 2
    assert mesh.cluster.counters.replans == 2
    mesh.settle()
    assert mesh.members.assignment.active.members == (1,)
    window.layers(1)


def test_a_wrong_answer_to_one_half_leaves_the_other_alone() -> None:
    mesh = ScriptedMesh(2)
    worker = mesh.workers[0]
    worker.behaviour = lambda work: [
        replace(good_answer(work), single_row=work.row[:0], single=np.empty((0, WIDTH), np.float32))
        if work.step % 2
        else good_answer(work)
    ]
    PingPong(mesh).layers(2)
    assert mesh.cluster.counters.dropped == mesh.cluster.counters.replans == 2
    assert mesh.cluster.counters.workers["worker-0"].calls == 2


def test_an_answer_that_was_lost_shows_by_the_next_one() -> None:
    mesh = ScriptedMesh(1)
    [worker] = mesh.workers
    worker.behaviour = lambda work: [] if work.step % 2 else [good_answer(work)]
    began = mesh.clock.now
    PingPong(mesh).layers(2)
    assert mesh.clock.now - began < LIMITS.floor_s / 2
    assert mesh.cluster.counters.replans == 2
    assert mesh.cluster.suspects() == set()


def test_what_is_given_up_in_mid_step_is_late_and_the_next_step_is_sound() -> None:
    mesh = ScriptedMesh(2)
    window = PingPong(mesh)
    for worker in mesh.workers:
        worker.behaviour = silent
    window.begin(0)
    window.begin(1)
    mesh.experts.abandon()
    assert mesh.cluster.suspects() == {0, 1}
    PingPong(mesh).layers(1)
    assert mesh.cluster.counters.local_entries == ENTRIES
    for worker in mesh.workers:
        worker.say(*map(good_answer, worker.work))
        worker.behaviour = answers_well
    PingPong(mesh).layers(1)
    assert mesh.cluster.counters.late_replies == 4
    assert mesh.cluster.suspects() == set()
    assert mesh.cluster.counters.local_entries == ENTRIES


def test_what_neither_a_worker_nor_the_bank_can_compute_fails_by_name_and_leaves_nothing_awaited() -> None:
    mesh = ScriptedMesh(2)
    window = PingPong(mesh)
    for worker in mesh.workers:
        worker.behaviour = lambda work: failed(work) if work.step % 2 else []
    mesh.bank.broken = True
    window.begin(0)
    window.begin(1)
    with pytest.raises(ExpertError, match="the bank is broken"):
        window.finish(0)
    mesh.experts.abandon()
    assert mesh.cluster.suspects() == {0, 1}
    mesh.bank.broken = False
    PingPong(mesh).layers(1)


def test_a_lost_answer_to_the_last_call_does_not_make_a_worker_suspect_for_ever() -> None:
    mesh = ScriptedMesh(2)
    worker = mesh.workers[0]
    worker.behaviour = silent
    PingPong(mesh).layers(1)
    worker.behaviour = answers_well
    for _ in range(2):
        worker.say_control(beat(token=worker.token, step=2, layer=0, calls=2))
    PingPong(mesh).layers(1)
    PingPong(mesh).layers(1)
    assert mesh.cluster.suspects() == set()
    assert mesh.cluster.counters.workers["worker-0"].calls == 4


def test_the_device_has_done_the_one_half_before_it_is_given_the_other() -> None:
    mesh = ScriptedMesh(1, slots=8)
    assert mesh.slots is not None
    PingPong(mesh).layers(1)
    assert [what for what in mesh.slots.diary if what != "fetch"] == ["launch", "check", "launch", "check"]


def test_slots_that_fail_for_the_first_half_end_the_step_and_the_next_one_is_sound() -> None:
    mesh = ScriptedMesh(1, slots=8)
    assert mesh.slots is not None
    mesh.slots.broken = True
    window = PingPong(mesh)
    window.begin(0)
    with pytest.raises(ExpertError, match="the slots are broken"):
        window.begin(1)
    mesh.slots.broken = False
    mesh.experts.abandon()
    PingPong(mesh).layers(1)


def test_times_are_those_of_what_is_done_here() -> None:
    mesh = ScriptedMesh(2)
    for worker in mesh.workers:
        worker.behaviour = lambda work: [replace(good_answer(work), busy_us=50_000)]
    window = PingPong(mesh)
    window.begin(0)
    mesh.clock.now += 0.04  # the other half's attention
    window.begin(1)
    window.finish(0)
    summary = mesh.experts.times.summary()
    assert summary["total_p50_us"] < 40_000
    assert summary["kernel_p50_us"] == pytest.approx(10_000, abs=2 * 5_000 + 1)
    window.finish(1)
