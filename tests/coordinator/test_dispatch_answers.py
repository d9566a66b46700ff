"""Wrong, foreign, late and second answers: dropped and counted, and the sums are right nevertheless."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from message_examples import beat
from scripted_answers import answers_well, good_answer, silent, wrong_row
from scripted_mesh import ScriptedMesh, Worker, check

from protocol.messages import Beat, BeatSeen, Message, RunExperts, Sums


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
