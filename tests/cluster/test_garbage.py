"""Anybody on this machine can dial the coordinator's sockets: whatever they send is dropped, and answers go on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from clusters import Then, live_cluster
from message_examples import examples
from reference_answer import Reference

from coordinator.main import work_endpoint
from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.messages import Stop

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def _garbage(chance: random.Random) -> list[bytes]:
    """Frames of no message: noise, or a message with one thing wrong."""
    while True:
        frames = _spoilt([bytes(frame) for frame in encode(chance.choice(examples()))], chance)
        try:
            decode(frames)
        except ProtocolError:
            return frames


def _spoilt(frames: list[bytes], chance: random.Random) -> list[bytes]:
    header, *arrays = frames
    match chance.randrange(6):
        case 0:
            return [chance.randbytes(chance.randrange(1, 200)) for _ in range(chance.randrange(1, 5))]
        case 1:
            return [header[: chance.randrange(len(header))], *arrays]
        case 2:
            return [*frames, b""]
        case 3:
            return [b""] * chance.randrange(1, 80)
        case 4:
            at = chance.randrange(len(header))
            return [header[:at] + chance.randbytes(1) + header[at + 1 :], *arrays]
        case _:
            return [header + chance.randbytes(3), *arrays]


def _misdirected() -> list[list[bytes]]:
    """Sound messages that nobody asked this sender for; it has not said Hello."""
    return [[bytes(frame) for frame in encode(message)] for message in examples() if not isinstance(message, Stop)]


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
    messages = [_garbage(chance) for _ in range(300)] + _misdirected()
    # Patient, so that whatever is computed here is the garbage's doing.
    settings = {"coordinator_options": ["--call-floor-ms", "20000"]}
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
