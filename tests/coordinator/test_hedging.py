"""Calls that take long are computed elsewhere, too, well before their deadline; the first answer counts, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_examples import beat
from scripted_answers import answers_well, failed, good_answer, silent
from scripted_mesh import IDS, LIMITS, WEIGHTS, ScriptedMesh, Worker
from scripted_parts import EXPERTS, WIDTH, expected_sums

from protocol.messages import F32, I32, Message, RunExperts

HEDGING = replace(LIMITS, hedge_floor_s=0.05, hedge_first_s=0.05)


def check(mesh: ScriptedMesh, ids: I32 = IDS, weights: F32 = WEIGHTS) -> float:
    """One layer more, with the right sums; what it took."""
    began = mesh.clock.now
    np.testing.assert_array_equal(mesh.run(ids, weights), expected_sums(ids, weights))
    return mesh.clock.now - began


def frozen_one(workers: int, **settings: str) -> tuple[ScriptedMesh, Worker]:
    """A mesh that has computed a layer, and a worker that says nothing from then on."""
    mesh = ScriptedMesh(workers, limits=HEDGING, **settings)  # type: ignore[arg-type]
    check(mesh)
    mesh.workers[0].behaviour = silent
    return mesh, mesh.workers[0]


def test_a_worker_that_says_nothing_costs_one_hedge_and_gets_no_more_work() -> None:
    mesh, frozen = frozen_one(2)
    assert check(mesh) == pytest.approx(0.05, abs=0.03)
    assert check(mesh) < 0.03
    assert len(frozen.work) == 2
    counters = mesh.cluster.counters
    assert (counters.hedges, counters.replans) == (1, 0)
    assert counters.local_entries == 2 * len(frozen.work[-1].entry_expert)  # of both layers


def test_it_is_suspect_only_after_its_deadline() -> None:
    mesh, _ = frozen_one(2)
    check(mesh)
    assert mesh.cluster.suspects() == set()
    while mesh.cluster.suspects() == set():
        before = mesh.clock.now
        check(mesh)
        mesh.cluster.wait(0.05)
        assert mesh.clock.now > before
    assert mesh.clock.now - 1000.0 > LIMITS.floor_s


def test_its_answer_is_late_and_it_gets_work_again() -> None:
    mesh, slow = frozen_one(2)
    check(mesh)
    slow.behaviour = answers_well
    slow.say(good_answer(slow.work[-1]))
    check(mesh)
    assert mesh.cluster.counters.late_replies == 1
    assert mesh.cluster.counters.dropped == 0
    assert len(slow.work) == 3


def test_an_answer_just_before_the_hedge_is_computed_nowhere_else() -> None:
    mesh, slow = frozen_one(2)
    mesh.waits = [lambda: None, lambda: slow.say(good_answer(slow.work[-1]))]
    check(mesh)
    assert (mesh.cluster.counters.hedges, mesh.cluster.counters.local_entries) == (0, 0)


def test_mates_are_asked_before_the_local_bank() -> None:
    mesh, frozen = frozen_one(3, pages="same")
    assert check(mesh) < 0.1
    counters = mesh.cluster.counters
    assert (counters.hedges, counters.local_entries) == (1, 0)
    asked_for_it = [worker.work[-1] for worker in mesh.workers[1:] if worker.work[-1].attempt]
    entries = [
        entry for work in asked_for_it for entry in zip(work.entry_expert, work.row[work.entry_row], strict=True)
    ]
    late = frozen.work[-1]
    assert sorted(entries) == sorted(zip(late.entry_expert, late.row[late.entry_row], strict=True))


def test_whoever_answers_first_counts_and_the_other_one_is_dropped() -> None:
    mesh, slow = frozen_one(2, pages="same")
    mate = mesh.workers[1]
    mate.behaviour = lambda work: [] if work.attempt else [good_answer(work)]

    def answer_once_the_mate_was_asked() -> None:
        if mesh.cluster.counters.hedges:
            slow.say(good_answer(slow.work[-1]))
        else:
            mesh.waits.insert(0, answer_once_the_mate_was_asked)

    mesh.waits = [answer_once_the_mate_was_asked]
    check(mesh)
    assert mesh.cluster.counters.hedges == 1
    assert mesh.cluster.counters.local_entries == 0
    assert mesh.cluster.counters.workers["worker-0"].calls == 2
    mate.behaviour = slow.behaviour = answers_well
    mate.say(good_answer(mate.work[-1]))
    check(mesh)
    assert mesh.cluster.counters.late_replies == 1
    assert mesh.cluster.suspects() == set()
    check(mesh)


def test_a_lost_answer_to_a_hedged_call_is_noticed_by_beats() -> None:
    mesh, worker = frozen_one(2)
    check(mesh)
    worker.behaviour = answers_well
    for _ in range(2):
        worker.say_control(beat(token=worker.token, step=mesh.steps, layer=0, calls=1))
    check(mesh)
    assert len(worker.work) == 3


def test_all_workers_slow_at_once_cost_one_hedge_each() -> None:
    mesh = ScriptedMesh(3, limits=HEDGING)
    check(mesh)
    for worker in mesh.workers:
        worker.behaviour = silent
    assert check(mesh) < 0.1
    assert check(mesh) < 0.03
    assert mesh.cluster.counters.hedges == 3


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(1, 6), st.sampled_from(["", "same"]), st.booleans())
def test_any_routing_is_covered_once_whoever_is_asked_twice(
    data: st.DataObject, workers: int, rows: int, pages: str, hasty: bool
) -> None:
    """Also if some are lost, come late, wrong or twice: with attempts at the same entries under way at once."""
    k = data.draw(st.integers(1, EXPERTS))
    ids = np.array([data.draw(st.permutations(range(EXPERTS)))[:k] for _ in range(rows)], np.int32)
    weights = data.draw(st.integers(1, 16)) / np.float32(16) * np.ones((rows, k), np.float32)
    limits = replace(HEDGING, hedge_floor_s=0.001) if hasty else HEDGING
    mesh = ScriptedMesh(workers, pages=pages, limits=limits)

    def one_call_late() -> Callable[[RunExperts], list[Message]]:
        asked: list[RunExperts] = []

        def answer(work: RunExperts) -> list[Message]:
            asked.append(work)
            return [good_answer(one) for one in asked[-2:-1]]

        return answer

    def tricks() -> list[Callable[[RunExperts], list[Message]]]:
        return [
            answers_well,
            silent,
            one_call_late(),
            lambda work: failed(work),
            lambda work: [good_answer(work)] if work.attempt else [],
            lambda work: [] if work.attempt else [good_answer(work)],
            lambda work: failed(work) if work.attempt else [],
            lambda work: [good_answer(work), good_answer(work)],
            lambda work: [replace(good_answer(work), attempt=work.attempt + 1000)],  # never asked for
            lambda work: [replace(good_answer(work), single_row=work.row[:0], single=np.empty((0, WIDTH), np.float32))],
        ]

    for worker in mesh.workers:
        worker.behaviour = data.draw(st.sampled_from(tricks()))

    def something_late() -> None:
        worker = data.draw(st.sampled_from(mesh.workers))
        if worker.work:
            worker.say(good_answer(data.draw(st.sampled_from(worker.work[-3:]))))

    happens: list[Callable[[], None]] = [lambda: None, something_late, *(worker.die for worker in mesh.workers)]
    died: set[int] = set()

    def happen() -> None:
        at = data.draw(st.integers(0, len(happens) - 1))
        if at < 2:
            happens[at]()
        elif at not in died:
            died.add(at)
            happens[at]()

    mesh.waits = [happen] * data.draw(st.integers(0, 8))
    for _ in range(4):
        check(mesh, ids, weights)
