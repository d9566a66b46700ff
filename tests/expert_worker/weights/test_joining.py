"""A worker without a model: what it makes of what it is offered, from whomever."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from worker_process import WITHIN_S, ScriptedCoordinator, Start, WorkerProcess, holders_of

from expert_worker.weights.giving import Giving
from protocol.bulk import BULK_FRAME_BYTES
from protocol.messages import (
    NO_RANK,
    PROTOCOL,
    Assign,
    AssignFailed,
    AssignReady,
    Message,
    ModelOffer,
    PieceBytes,
    PieceFailed,
    Refused,
)
from protocol.model import Model
from protocol.neighbours import bulk_endpoint
from protocol.wire import Bound

pytestmark = pytest.mark.cluster

Answer = Callable[[Message], Message | None]


class ScriptedWeights:
    """The weights process of a scripted coordinator, whose answers pass through a test's hands."""

    def __init__(self, coordinator: ScriptedCoordinator, giving: Giving) -> None:
        self.giving = giving
        self.endpoint = bulk_endpoint(coordinator.control.endpoint)
        self.bulk = Bound(self.endpoint, max_frame_bytes=BULK_FRAME_BYTES)

    def serve(self, worker: WorkerProcess, until: Callable[[], bool], change: Answer = lambda message: message) -> None:
        """Answer, each answer changed, until something is true."""
        deadline = time.monotonic() + WITHIN_S
        while not until():
            assert time.monotonic() < deadline, worker.log()
            received = self.bulk.receive(0.02)
            if received is not None:
                answer = self.giving.answer(received[1])
                changed = None if answer is None else change(answer)
                if changed is not None:
                    self.bulk.send(received[0], changed)

    def ends(self, worker: WorkerProcess, change: Answer) -> str:
        """What a worker that ends with code 2 says, given such answers."""
        self.serve(worker, lambda: worker.process.poll() is not None, change)
        code, line = worker.ends()
        assert code == 2
        return line


@pytest.fixture
def weights(tiny_model: Path, coordinator: ScriptedCoordinator) -> Iterator[ScriptedWeights]:
    with Model.open(tiny_model) as model:
        made = ScriptedWeights(coordinator, Giving(model))
        yield made
        made.bulk.close()


@pytest.fixture
def start(coordinator: ScriptedCoordinator, tiny_model: Path, tmp_path: Path) -> Iterator[Start]:
    with holders_of(coordinator, tmp_path / "cache", tmp_path, "cached_worker") as start:
        yield start


def offering(**changes: object) -> Answer:
    return lambda answer: replace(answer, **changes) if isinstance(answer, ModelOffer) else answer


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            lambda answer: Refused(mismatches=[["protocol", str(PROTOCOL), "99"]]),
            rf"the weights process at ipc://@.*-bulk refused: protocol is {PROTOCOL}, expected 99",
        ),
        (
            lambda answer: PieceFailed(file=0, offset=0, reason="model file /m changed while in use"),
            "no weights are to be had from ipc://@.*: model file /m changed while in use",
        ),
        (offering(names=["../../evil.gguf"]), "a model's file is called '../../evil.gguf', expected printable"),
        (offering(names=[".pieces-1"]), "a model's file is called '.pieces-1', expected printable characters"),
        (offering(fingerprint="../../../x"), "model '../../../x' is offered, expected 16 hex digits"),
        (offering(heads=[1 << 30], sizes=[1 << 40]), "a file's head of 1073741824 bytes is offered, 134217728 at"),
    ],
)
def test_offers_of_no_use_are_refused_and_leave_nothing(
    change: Answer, error: str, weights: ScriptedWeights, start: Start, tmp_path: Path
) -> None:
    assert re.search(error, weights.ends(start(), change))
    assert not (tmp_path / "cache").exists()
    assert not list(tmp_path.parent.glob("evil*"))


def test_heads_that_make_another_model_are_refused(weights: ScriptedWeights, start: Start) -> None:
    weights.giving.offer = replace(weights.giving.offer, fingerprint="0" * 16)
    line = weights.ends(start(), lambda answer: answer)
    assert "the files' heads make model" in line
    assert "and 0000000000000000 was offered by ipc://@" in line


def test_nobody_who_gives_is_an_error_that_tells_what_to_do(start: Start) -> None:
    code, line = start("--orphan-s", "1").ends()
    assert code == 2
    assert "nobody gives weights at ipc://@" in line
    assert "bulk = true" in line


def test_a_cache_that_cannot_be_is_an_error(weights: ScriptedWeights, start: Start, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    line = weights.ends(start(), lambda answer: answer)
    assert f"cache {tmp_path}/cache" in line
    assert "cannot be used: " in line


def test_damage_in_a_head_is_mended(weights: ScriptedWeights, start: Start, coordinator: ScriptedCoordinator) -> None:
    left = iter(range(2))

    def damage(answer: Message) -> Message:
        if not isinstance(answer, PieceBytes) or next(left, None) is None:
            return answer
        return replace(answer, data=answer.data[::-1].copy())

    worker = start()
    weights.serve(worker, lambda: "dialling" in worker.log(), damage)
    assert worker.log().count("came damaged from") == 2
    assert coordinator.welcome(worker).fingerprint == weights.giving.offer.fingerprint


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of its own; skips where there is no right to mount one."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no right to mount: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_small_disk_is_told_at_hello_and_filled_and_more_is_refused(
    weights: ScriptedWeights, start: Start, coordinator: ScriptedCoordinator, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "cache", "1500k"):
        worker = start()
        weights.serve(worker, lambda: "dialling" in worker.log())
        hello = coordinator.welcome(worker)
        held = np.ones((hello.geometry["layers"], hello.geometry["experts"]), np.uint8)
        coordinator.say(Assign(placement=1, in_force=0, held=held, rank=NO_RANK))
        failed = coordinator.hear(coordinator.control, AssignFailed, worker)
        assert "MiB more are needed for the weights of the assigned experts, " in failed.reason
        assert "free on that disk" in failed.reason
        assert 1 < hello.able.sum() < held.sum() // 2
        coordinator.say(Assign(placement=2, in_force=0, held=hello.able, rank=NO_RANK))
        ready: list[AssignReady | None] = []

        def is_ready() -> bool:
            ready[:] = [coordinator.glance(AssignReady)]
            return ready[0] is not None

        weights.serve(worker, is_ready)
        assert ready[0] is not None
        assert ready[0].experts == hello.able.sum()
