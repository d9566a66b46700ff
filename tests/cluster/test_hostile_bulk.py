"""Whatever is said on bulk, a weights process stays small and goes on giving."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil
import pytest
import zmq
from clusters import FORGIVING, in_force, live_cluster, worker_of
from command_line import environment, wait_until
from footprint import memory_of
from free_ports import four_ports
from hostile import FOR_S, KINDS, Attack
from reference_answer import Reference

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
from protocol.neighbours import bulk_endpoint
from protocol.wire import Dialled

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(FOR_S * 3 + 180)]

M = TypeVar("M", bound=Message)

MOST_MORE = 96 << 20
"""Bytes that it may have more than before while everything is sent to it."""
MAY_GROW = 60 << 20
"""Bytes: two queues of pieces, and what libzmq and the kernel have on their way."""


class Weights:
    """A weights process, and its size."""

    def __init__(self, model: Path) -> None:
        self.port = four_ports()
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
        OfferPieces(
            fingerprint=weights.offer.fingerprint, endpoint="x" * 60_000, key="", have=np.ones((700, 700), np.uint8)
        ),
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


def test_hostile_bytes_on_bulk_during_answers_change_nothing_and_take_no_memory(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    """A worker without a model comes meanwhile; it gets all of its weights, if not before the end of the attack."""
    caches = {number: tmp_path / f"cache-{number}" for number in range(2)}
    settings = {"listen": f"tcp://127.0.0.1:{four_ports()}", "caches": caches, "coordinator_options": FORGIVING}
    with live_cluster(demo_model, tmp_path, workers=1, **settings) as cluster:
        pid, port = cluster.weights.pid, int(bulk_endpoint(cluster.endpoint).rpartition(":")[2])
        reference.check(cluster.answer(prompt, 100))
        before, most, answers = memory_of(pid).anonymous, 0, 0
        with Attack(port, 0) as attack:
            until = time.monotonic() + FOR_S
            cluster.workers.append(cluster.start_worker(1))
            while time.monotonic() < until or not all(attack.done.values()):
                reference.check(cluster.answer(prompt, 60))
                most, answers = max(most, memory_of(pid).anonymous), answers + 1
        cluster.wait_for(lambda report: in_force(report) == 2, 60.0)
        answer = cluster.answer(prompt, 200)
        reference.check(answer)
        assert answer.report["local_entries"] == 0
        assert worker_of(answer.report, "worker-1")["calls"]
        assert most - before < MOST_MORE, (before, most)
        assert answers > 0
        assert all(attack.done[kind] for kind in KINDS)
        assert cluster.weights.exit_code() is None
        cluster.wait_for(lambda report: psutil.Process(pid).num_fds() < 100)  # what was opened is closed
