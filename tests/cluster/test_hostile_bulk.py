"""Whatever is said on bulk, a weights process stays small and goes on giving."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil
import pytest
import zmq
from command_line import environment, wait_until
from free_ports import three_ports

from protocol.bulk import BULK_FRAME_BYTES
from protocol.codec import encode
from protocol.messages import (
    MAX_DIGESTS,
    MAX_PIECE_BYTES,
    PROTOCOL,
    AskDigests,
    AskModel,
    FetchPiece,
    Message,
    ModelOffer,
    OfferPieces,
    PieceBytes,
    Stop,
)
from protocol.wire import Dialled

pytestmark = pytest.mark.cluster

M = TypeVar("M", bound=Message)

MAY_GROW = 60 << 20
"""Bytes: two queues of pieces, and what libzmq and the kernel have on their way."""


class Weights:
    """A weights process, and its size."""

    def __init__(self, model: Path) -> None:
        self.port = three_ports()
        self.endpoint = f"tcp://127.0.0.1:{self.port}"
        options = ["--model", str(model), "--listen", self.endpoint, "--mb-s", "100000", "--parent", str(os.getpid())]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "expert_worker.weights.main", *options], env=environment()
        )
        self.offer = self.ask(AskModel(protocol=PROTOCOL), ModelOffer)

    def ask(self, message: Message, kind: type[M]) -> M:
        """Over a connection of its own."""
        with Dialled(self.endpoint, max_frame_bytes=BULK_FRAME_BYTES) as line:
            assert line.send(message)
            answer = line.receive(20)
        assert isinstance(answer, kind)
        return answer

    def fetch(self, **changes: int) -> FetchPiece:
        asked = {"file": 0, "offset": 0, "bytes": MAX_PIECE_BYTES} | changes
        return FetchPiece(fingerprint=self.offer.fingerprint, **asked)

    def resident(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)


@pytest.fixture
def weights(demo_model: Path) -> Iterator[Weights]:
    made = Weights(demo_model)
    yield made
    made.process.kill()
    made.process.wait()


@contextmanager
def unread(endpoint: str) -> Iterator[zmq.Socket[bytes]]:
    """A connection that takes in next to nothing."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as flood:
        flood.setsockopt(zmq.LINGER, 0)
        flood.setsockopt(zmq.RCVHWM, 1)
        flood.setsockopt(zmq.RCVBUF, 1 << 16)
        flood.connect(endpoint)
        yield flood


def test_a_flood_of_questions_whose_answers_nobody_reads_fills_no_memory(weights: Weights) -> None:
    weights.ask(weights.fetch(), PieceBytes)
    before = weights.resident()
    with unread(weights.endpoint) as one, unread(weights.endpoint) as two:
        for flood in (one, two):
            for number in range(200):
                flood.send_multipart(encode(weights.fetch(offset=number)), zmq.NOBLOCK)
        with Dialled(weights.endpoint, max_frame_bytes=BULK_FRAME_BYTES) as other:  # gets its turn, as those do
            for _ in range(80):
                other.send(weights.fetch(bytes=5))
                assert isinstance(other.receive(60), PieceBytes)
        assert weights.resident() - before < MAY_GROW


def test_garbage_and_what_is_none_of_its_business_change_nothing(weights: Weights) -> None:
    before = weights.resident()
    noise = np.random.default_rng(0)
    for size in (1, 10, 64, 1000, 1 << 16, 1 << 20):
        with socket.create_connection(("127.0.0.1", weights.port), timeout=5) as raw:
            try:
                raw.sendall(noise.bytes(size))
            except OSError:  # it hung up before it had heard all of it
                continue
    huge = np.full(MAX_DIGESTS, 2**62, np.int64)
    others = [
        Stop(),
        AskDigests(fingerprint=weights.offer.fingerprint, file=0, offset=huge, bytes=np.ones(MAX_DIGESTS, np.int64)),
        OfferPieces(fingerprint=weights.offer.fingerprint, endpoint="x" * 60_000, have=np.ones((999, 999), np.uint8)),
        weights.fetch(file=2**62),
        weights.fetch(offset=2**63 - 1),
        AskModel(protocol=-1),
    ]
    with Dialled(weights.endpoint, max_frame_bytes=BULK_FRAME_BYTES) as line:
        for message in others * 10:
            line.send(message)
        assert wait_until(lambda: line.receive(0) is not None, 10)
    assert weights.ask(AskModel(protocol=PROTOCOL), ModelOffer).names == weights.offer.names
    assert weights.process.poll() is None
    assert weights.resident() - before < MAY_GROW
