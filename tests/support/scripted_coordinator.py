"""A coordinator that answers clients by a script, in a thread of its own."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from coordinator.client import Client
from protocol.messages import Message, Welcome
from protocol.wire import Bound

Script = Callable[[Message], Sequence[Message]]
"""What the coordinator answers to a message."""


class Coordinator:
    """Answers by the script until the end of the block; keeps what it heard."""

    def __init__(self, script: Script) -> None:
        self.endpoint = f"ipc://@expertmesh-test-{secrets.token_hex(8)}"
        self.heard: list[Message] = []
        self._script = script
        self._end = threading.Event()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        with Bound(self.endpoint) as bound:
            self._listens.set()
            while not self._end.is_set():
                if (got := bound.receive(0.02)) is not None:
                    peer, message = got
                    self.heard.append(message)
                    for answer in self._script(message):
                        bound.send(peer, answer)

    @contextmanager
    def serving(self) -> Iterator[Client]:
        """A client of it, greeted by nobody yet."""
        self._thread.start()
        assert self._listens.wait(10)
        try:
            with Client(self.endpoint, fingerprint="f" * 16, geometry={"layers": 2}) as client:
                yield client
        finally:
            self._end.set()
            self._thread.join()


def welcome(session: str = "one") -> Welcome:
    return Welcome(session=session, token="t", work="ipc://@work", inputs="ipc://@inputs", beat_s=0.5)
