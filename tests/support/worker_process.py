"""A real expert worker process, and a coordinator that says only what a test makes it say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

import moe_models
import numpy as np

from protocol.codec import MAX_FRAME_BYTES
from protocol.messages import NO_RANK, Assign, AssignReady, Beat, BeatSeen, Hello, Message, OpenWork, Welcome
from protocol.wire import Bound, Dialled, wait

ROOT = Path(__file__).parents[2]
WITHIN_S = 20.0
LAYERS, EXPERTS, WIDTH = 3, 6, 64
"""Of the model that holders are tested with."""

M = TypeVar("M", bound=Message)
Start: TypeAlias = "Callable[..., WorkerProcess]"


def write_model(folder: Path) -> Path:
    """The model that holders are tested with."""
    path = folder / "small.gguf"
    return moe_models.write_model(
        path, layers=LAYERS, experts=EXPERTS, experts_used=2, embd=WIDTH, ff_exp=32, vocab=300, heads=2
    )


class ScriptedCoordinator:
    """Both of a coordinator's sockets; whoever asks for a message of some class loses those before it."""

    def __init__(self, name: str = "") -> None:
        self.name = name or f"expertmesh-test-{uuid.uuid4().hex}"
        self.control = Bound(f"ipc://@{self.name}")
        self.work = Bound(f"ipc://@{self.name}-work", max_frame_bytes=MAX_FRAME_BYTES)
        self.control_peer = self.work_peer = b""
        self.stranger = b""
        """Whoever sent the latest beat."""
        self.answers_beats = True
        self.session = "s1"

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Self]:
        """One that is closed at the end."""
        coordinator = cls()
        try:
            yield coordinator
        finally:
            coordinator.close()

    def hear(self, socket: Bound, kind: type[M], worker: WorkerProcess | None = None) -> M:
        """The next message of this class on `socket`; beats are answered meanwhile."""
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            if worker is not None and worker.process.poll() is not None:
                raise AssertionError(f"the worker exited with {worker.process.returncode}: {worker.log()}")
            for one in wait([self.control, self.work], 0.05):
                found = self._take(one)
                if one is socket and isinstance(found, kind):
                    return found
        raise AssertionError(f"no {kind.__name__} within {WITHIN_S} s: {worker.log() if worker else ''}")

    def glance(self, kind: type[M]) -> M | None:
        """A message of this class on control, if it is there already; others are lost, beats are answered."""
        while (found := self._take(self.control)) is not None:
            if isinstance(found, kind):
                return found
        return None

    def _take(self, socket: Bound | Dialled) -> Message | None:
        assert isinstance(socket, Bound)
        received = socket.receive()
        if received is None:
            return None
        peer, message = received
        if isinstance(message, Hello):
            self.control_peer = peer
        elif isinstance(message, OpenWork):
            self.work_peer = peer
        elif isinstance(message, Beat):
            self.stranger = peer
            if self.answers_beats:
                socket.send(peer, BeatSeen(session=self.session))
        return message

    def say(self, message: Message) -> None:
        """On control."""
        assert self.control.send(self.control_peer, message)

    def ask(self, message: Message) -> None:
        """On work."""
        assert self.work.send(self.work_peer, message)

    def welcome(self, worker: WorkerProcess, **changes: Any) -> Hello:
        """Take the worker's Hello, and its OpenWork with the new token."""
        hello = self.hear(self.control, Hello, worker)
        while (later := self.glance(Hello)) is not None:  # over a connection that is there still
            hello = later
        self.session = changes.get("session", "s1")
        terms: dict[str, Any] = {
            "session": self.session,
            "token": "t1",
            "work": self.work.endpoint,
            "inputs": "ipc://@inputs",
            "beat_s": 0.05,
        } | changes
        self.say(Welcome(**terms))
        while self.hear(self.work, OpenWork, worker).token != terms["token"]:
            pass
        return hello

    def assign_all(self, worker: WorkerProcess, hello: Hello, placement: int = 1) -> AssignReady:
        """Every expert of the worker's model."""
        shape = hello.geometry["layers"], hello.geometry["experts"]
        self.say(Assign(placement=placement, in_force=0, held=np.ones(shape, np.uint8), rank=NO_RANK))
        return self.hear(self.control, AssignReady, worker)

    def close(self) -> None:
        """Both sockets."""
        self.control.close()
        self.work.close()


class WorkerProcess:
    """`python -P -m expert_worker.main`, or another holder of experts, its stderr in a file."""

    def __init__(
        self, endpoint: str, model: Path, folder: Path, *options: str, module: str = "expert_worker.main"
    ) -> None:
        self._log = folder / f"worker-{uuid.uuid4().hex[:6]}.log"
        arguments = ["--connect", endpoint, "--model", str(model), "--name", "box-0", "--log", "debug", *options]
        with self._log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )

    def log(self) -> str:
        """What it wrote to stderr so far."""
        return self._log.read_text()

    def ends(self) -> tuple[int, str]:
        """Exit code and last line of stderr, once it has ended; nothing may be on stdout."""
        stdout, _ = self.process.communicate(timeout=WITHIN_S)
        assert stdout == b""
        return self.process.returncode, (self.log().splitlines() or [""])[-1]

    def kill(self) -> None:
        """If it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@contextmanager
def holders_of(coordinator: ScriptedCoordinator, model: Path, folder: Path, module: str) -> Iterator[Start]:
    """A function that starts holders of `model` for this coordinator, of this `module` if nothing else is said.

    All are killed at the end.
    """
    started: list[WorkerProcess] = []

    def start(
        *options: str, model: Path = model, endpoint: str = coordinator.control.endpoint, module: str = module
    ) -> WorkerProcess:
        started.append(WorkerProcess(endpoint, model, folder, *options, module=module))
        return started[-1]

    try:
        yield start
    finally:
        for holder in started:
            holder.kill()
