"""Without a local bank: others that hold an expert are asked, or waited for; what nobody holds fails by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from message_examples import beat
from scripted_answers import answers_well, failed, good_answer, silent
from scripted_mesh import IDS, LIMITS, WEIGHTS, ScriptedMesh, Worker
from scripted_parts import expected_sums

from protocol.errors import ExpertError

HEDGING = replace(LIMITS, hedge_floor_s=0.05, hedge_first_s=0.05, ceiling_s=8.0)


def check(mesh: ScriptedMesh) -> None:
    np.testing.assert_array_equal(mesh.run(IDS, WEIGHTS), expected_sums(IDS, WEIGHTS))
    assert mesh.bank.calls == []


def test_nobody_at_all_fails_before_anything_is_computed_and_names_the_experts() -> None:
    mesh = ScriptedMesh(0, limits=HEDGING, local=False)
    with pytest.raises(ExpertError) as error:
        mesh.run(IDS, WEIGHTS, layer=1)
    assert str(error.value) == (
        "layer 1: experts 0, 1, 2, 3, 4, 5, 6, 7: nobody holds them, and local_experts is false"
    )
    Worker(mesh, "worker-0")
    mesh.settle()
    check(mesh)


def test_a_dead_workers_experts_fail_by_name_until_others_hold_them() -> None:
    mesh = ScriptedMesh(2, limits=HEDGING, local=False)
    check(mesh)
    victim, other = mesh.workers
    victim.behaviour = silent
    mesh.waits = [victim.die]
    with pytest.raises(ExpertError) as error:
        mesh.run(IDS, WEIGHTS)
    assert str(error.value) == (
        "layer 0: experts 0, 2, 4, 6: nobody holds them, and local_experts is false; worker-0 is gone: its connection "
        "is closed or full"
    )
    other.work.clear()
    with pytest.raises(ExpertError, match="experts 0, 2, 4, 6: nobody holds them"):
        mesh.run(IDS, WEIGHTS)
    assert other.work == []  # nobody was asked for what would have been of no use
    mesh.settle()
    check(mesh)


def test_a_slow_worker_is_waited_for_to_the_end_and_asked_again_if_its_answer_was_lost() -> None:
    mesh = ScriptedMesh(1, limits=HEDGING, local=False)
    check(mesh)
    (slow,) = mesh.workers
    slow.behaviour = silent

    def lose() -> None:
        slow.behaviour = answers_well
        slow.say_control(beat(token=slow.token, step=mesh.steps, layer=0, calls=1))

    nothing = [lambda: None] * 12
    mesh.waits = [*nothing, lose, lose]
    check(mesh)
    assert mesh.cluster.counters.hedges == 0
    assert len(slow.work) == 3


def test_a_slow_workers_answer_counts_even_long_after_others_would_have_been_asked() -> None:
    mesh = ScriptedMesh(1, limits=HEDGING, local=False)
    check(mesh)
    (slow,) = mesh.workers
    slow.behaviour = silent
    mesh.waits = [*[lambda: None] * 3, lambda: slow.say(good_answer(slow.work[-1]))]
    check(mesh)
    assert mesh.cluster.counters.late_replies == 0
    assert len(slow.work) == 2


def test_who_lives_and_never_answers_fails_the_request_by_name_and_the_next_one_is_sound() -> None:
    mesh = ScriptedMesh(1, limits=HEDGING, local=False)
    check(mesh)
    (stuck,) = mesh.workers
    stuck.behaviour = silent

    def live() -> None:
        mesh.clock.now += 0.05
        stuck.say_control(beat(token=stuck.token, step=1, layer=0, calls=1))

    mesh.waits = [live] * 1000
    began = mesh.clock.now
    with pytest.raises(ExpertError, match=r"layer 0: experts 0, 1, .*: no answer of worker-0"):
        mesh.run(IDS, WEIGHTS)
    assert mesh.clock.now - began < HEDGING.ceiling_s + 1
    mesh.waits.clear()
    stuck.behaviour = answers_well
    stuck.say(good_answer(stuck.work[-1]))
    check(mesh)


def test_who_fails_is_named_with_its_reason_and_asked_again_for_the_next_layer() -> None:
    mesh = ScriptedMesh(2, limits=HEDGING, local=False)
    check(mesh)
    mesh.workers[1].behaviour = failed
    with pytest.raises(ExpertError) as error:
        mesh.run(IDS, WEIGHTS)
    assert str(error.value) == (
        "layer 0: experts 1, 3, 5, 7: nobody holds them, and local_experts is false; worker-1 failed: no"
    )
    mesh.workers[1].behaviour = answers_well
    check(mesh)


@pytest.mark.parametrize("behaviour", [silent, failed])
def test_mates_compute_what_one_of_them_does_not(behaviour: object) -> None:
    mesh = ScriptedMesh(3, pages="same", limits=HEDGING, local=False)
    check(mesh)
    mesh.workers[0].behaviour = behaviour  # type: ignore[assignment]
    for _ in range(3):
        check(mesh)


def test_a_mate_that_dies_costs_no_request() -> None:
    mesh = ScriptedMesh(3, pages="same", limits=HEDGING, local=False)
    check(mesh)
    for victim in mesh.workers[:2]:
        victim.behaviour = silent
        mesh.waits = [victim.die]
        check(mesh)
    mesh.settle()
    check(mesh)


def test_when_all_mates_fail_the_request_does() -> None:
    mesh = ScriptedMesh(3, pages="same", limits=HEDGING, local=False)
    check(mesh)
    for worker in mesh.workers:
        worker.behaviour = failed
    with pytest.raises(ExpertError, match=r"worker-\d failed: no"):
        mesh.run(IDS, WEIGHTS)
    for worker in mesh.workers:
        worker.behaviour = answers_well
    check(mesh)
