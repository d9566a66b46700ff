"""Anybody on this machine can dial the coordinator's sockets: whatever they send is dropped, and answers go on."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import zmq
from clusters import PATIENT, Then, in_force, live_cluster, worker_of
from garbage import garbage, misdirected
from message_examples import LONGEST_TEXT, examples, hello, largest, with_longest_text
from reference_answer import Reference

from coordinator.main import work_endpoint
from protocol.messages import (
    AskStatus,
    Assign,
    AssignFailed,
    Hello,
    Message,
    OpenWork,
    Status,
    Stop,
    Welcome,
)
from protocol.model import Model
from protocol.wire import SMALL_FRAME_BYTES, Dialled

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

WITHIN_S = 20.0


M = TypeVar("M", bound=Message)


def told(line: Dialled, kind: type[M]) -> M:
    """The next message of this class; others are skipped."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if isinstance(message := line.receive(0.1), kind):
            return message
    raise AssertionError(f"no {kind.__name__} within {WITHIN_S} s")


def worker_hello(model: Path) -> Hello:
    """A sound one, of somebody who is no worker."""
    with Model.open(model) as opened:
        return hello(name="impostor", fingerprint=opened.fingerprint, geometry=opened.geometry.handshake())


@contextmanager
def strangers(*endpoints: str) -> Iterator[list[zmq.Socket[bytes]]]:
    """A raw socket dialled to each endpoint."""
    context = zmq.Context()
    sockets = [context.socket(zmq.DEALER) for _ in endpoints]
    for socket, endpoint in zip(sockets, endpoints, strict=True):
        socket.linger = 0
        socket.connect(endpoint)
    yield sockets
    context.destroy()


def test_garbage_on_both_sockets_is_dropped_and_counted(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    chance = random.Random(7)
    messages = [garbage(chance) for _ in range(300)] + misdirected()
    # Patient, so that whatever is computed here is the garbage's doing.
    settings = {"coordinator_options": PATIENT}
    with (
        live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster,
        strangers(cluster.endpoint, work_endpoint(cluster.endpoint)) as sockets,
    ):

        def flood() -> None:
            for frames in messages:
                for socket in sockets:
                    socket.send_multipart(frames)

        script = [Then(10, flood), Then(30, flood), Then(lambda report: report["dropped"] >= 4 * 300)]
        answer = cluster.answer(prompt, 1900, script=script)
    reference.check(answer)
    assert answer.report["local_entries"] == 0
    assert [worker["state"] for worker in answer.report["workers"]] == ["ready", "ready"]


def test_the_largest_sound_messages_of_strangers_clients_and_workers_end_nothing(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    sound = [*largest(SMALL_FRAME_BYTES), *(longer for one in examples() for longer in with_longest_text(one))]
    with live_cluster(demo_model, tmp_path, workers=1) as cluster, ExitStack() as stack:
        stranger, client, worker = (stack.enter_context(Dialled(cluster.endpoint)) for _ in range(3))
        client.send(hello(role="client", fingerprint="", geometry={}))
        told(client, Welcome)
        claim = worker_hello(demo_model)
        worker.send(claim)
        welcome = told(worker, Welcome)
        work = stack.enter_context(Dialled(welcome.work))
        work.send(OpenWork(token=welcome.token))
        worker.send(AssignFailed(placement=told(worker, Assign).placement, reason=LONGEST_TEXT))
        for longer in with_longest_text(replace(claim, incarnation="another")):
            stranger.send(longer)
        cluster.wait_for(lambda report: worker_of(report, "impostor")["state"] == "failed")
        for message in [one for one in sound for _ in range(2)]:
            for line in (stranger, client, worker, work):
                if line is client and isinstance(message, Stop):
                    continue  # it may
                while not line.send(message):
                    cluster.check()
        client.send(AskStatus())
        told(client, Status)
        cluster.wait_for(lambda report: report["state"] == "ready" and in_force(report) == 1)
        reference.check(cluster.answer(prompt, 50))
