"""Members are tried before they get work: sound ones pass, others are named, and nobody waits for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_answers import failed, good_answer
from scripted_mesh import ScriptedMesh, Worker
from scripted_parts import LAYERS, WIDTH, LayerForm, Layout, expected_sums
from test_audit import IDS, WEIGHTS, flips

from coordinator.audit import Auditor
from coordinator.canaries import ANSWER_S, ATTEMPT, Canaries, samples_of
from protocol.messages import U8, Message, RunExperts


class Tried(ScriptedMesh):
    """A mesh whose members are tried."""

    canaries: Canaries | None = None

    def settle(self) -> None:
        if self.canaries is None:
            layout: Any = Layout(width=WIDTH, layers=(LayerForm(True),) * LAYERS)
            bank: Any = self.bank
            chance = np.random.default_rng(7)
            self.canaries = Canaries(self.cluster, Auditor(bank, layout), layout, chance, self.clock)
        for _ in range(40):
            self.cluster.attend()
            if self.canaries.turn():
                self.members.assignment.switch()


def in_force(mesh: ScriptedMesh) -> set[str]:
    found = (mesh.members.get(serial) for serial in mesh.members.assignment.active.members)
    return {member.name for member in found if member is not None}


def check(mesh: ScriptedMesh) -> None:
    np.testing.assert_array_equal(mesh.run(IDS, WEIGHTS), expected_sums(IDS, WEIGHTS))


def join(mesh: ScriptedMesh, behaviour: Callable[[RunExperts], list[Message]], name: str = "newcomer") -> Worker:
    worker = Worker(mesh, name)
    worker.behaviour = behaviour
    mesh.workers.append(worker)
    mesh.settle()
    return worker


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**20))
def test_samples_are_of_what_is_held_and_sound_messages(seed: int, bits: int) -> None:
    held: U8 = np.array([(bits >> at) & 1 for at in range(20)], np.uint8).reshape(5, 4)
    layout: Any = Layout(width=64, layers=(LayerForm(True), LayerForm(False)) * 2 + (LayerForm(True),))
    samples = samples_of(held, layout, np.random.default_rng(seed))
    layers = np.flatnonzero(held.any(axis=1)).tolist()
    assert len(samples) == min(4, len(layers))
    if layers:
        assert {layers[0], layers[-1]} <= {sample.layer for sample in samples}
    for one in samples:
        assert held[one.layer, one.expert].all()
        assert len(set(one.expert.tolist())) == min(2, held[one.layer].sum())
        pairs = list(zip(one.expert.tolist(), one.row.tolist(), strict=True))
        assert pairs == sorted(set(pairs))
        assert set(one.row.tolist()) == set(range(one.rows().count))
        assert bool(len(one.codes)) == layout.layers[one.layer].quantised_input


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_sound_workers_pass_and_get_work(workers: int) -> None:
    mesh = Tried(workers)
    assert in_force(mesh) == {f"worker-{number}" for number in range(workers)}
    assert mesh.cluster.counters.canaries == workers * LAYERS
    for worker in mesh.workers:
        assert [(work.attempt, work.layer) for work in worker.work] == [(ATTEMPT, layer) for layer in range(LAYERS)]
        assert {work.placement for work in worker.work} == {mesh.members.assignment.active.version}
    check(mesh)
    tally = mesh.cluster.counters.worker("worker-0")
    assert tally.calls == 1  # canaries are none


def test_a_newcomer_with_one_wrong_bit_never_gets_work_and_the_others_go_on() -> None:
    mesh = Tried(2)
    newcomer = join(mesh, flips)
    assert in_force(mesh) == {"worker-0", "worker-1"}
    [member] = [one for one in mesh.members if one.name == "newcomer"]
    assert member.quarantined
    assert member.failed.startswith("quarantined: its bits differ: layer 0, ")
    check(mesh)
    assert [work.attempt for work in newcomer.work] == [ATTEMPT]


def test_a_sound_newcomer_is_tried_and_the_others_are_not_tried_again() -> None:
    mesh = Tried(2)
    before = [len(worker.work) for worker in mesh.workers]
    newcomer = join(mesh, lambda work: [good_answer(work)])
    assert in_force(mesh) == {"worker-0", "worker-1", "newcomer"}
    assert [len(worker.work) for worker in mesh.workers[:2]] == before
    assert len(newcomer.work) == LAYERS
    check(mesh)


def other_rows(work: RunExperts) -> list[Message]:
    return [replace(good_answer(work), single_row=work.row[:0], single=np.empty((0, WIDTH), np.float32))]


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [(failed, "failed on canary rows: no"), (other_rows, "a wrong answer to canary rows: ")],
)
def test_who_fails_gets_no_work(behaviour: Callable[[RunExperts], list[Message]], reason: str) -> None:
    mesh = Tried(1)
    join(mesh, behaviour)
    assert in_force(mesh) == {"worker-0"}
    [member] = [one for one in mesh.members if one.name == "newcomer"]
    assert member.failed.startswith(reason)
    assert not member.quarantined
    check(mesh)


def test_who_never_answers_is_given_up_and_work_goes_on_meanwhile() -> None:
    mesh = Tried(1)
    join(mesh, lambda work: [])
    assert in_force(mesh) == {"worker-0"}
    check(mesh)
    mesh.clock.now += ANSWER_S + 1
    mesh.settle()
    [member] = [one for one in mesh.members if one.name == "newcomer"]
    assert member.failed == "no answer to canary rows within 30 s"
    assert in_force(mesh) == {"worker-0"}


def test_who_dies_on_trial_is_forgotten() -> None:
    mesh = Tried(1)
    newcomer = join(mesh, lambda work: [])
    newcomer.die()
    mesh.cluster.probe([mesh.cluster.seat(member.serial) for member in mesh.members if member.name == "newcomer"])  # type: ignore[misc]
    mesh.settle()
    assert [member.name for member in mesh.members] == ["worker-0"]
    assert mesh.canaries is not None
    assert len(mesh.canaries._trials) == 1
    assert not mesh.cluster._asides
    check(mesh)


def test_what_cannot_be_computed_here_is_not_judged() -> None:
    mesh = Tried(0)
    mesh.bank.broken = True
    join(mesh, flips)
    assert in_force(mesh) == {"newcomer"}
    assert mesh.cluster.counters.canaries == 0


def test_an_answer_that_comes_again_is_none_to_a_step() -> None:
    mesh = Tried(1)
    first = mesh.workers[0].work[0]
    mesh.workers[0].say(good_answer(first))
    check(mesh)
    assert mesh.cluster.counters.late_replies + mesh.cluster.counters.dropped == 1
