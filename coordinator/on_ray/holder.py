"""What Ray runs on a node: it holds on to one worker process, whose lines and exit code it passes on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue

News = tuple[list[str], int | None]
"""Lines of a worker's stderr, and its exit code once it has ended and all of them are told."""


class Holder:
    """An actor. The worker dies with it, however it ends: the kernel sees to that."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Start a worker: this interpreter, with these arguments."""
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, *arguments, "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._read, name="stderr of the worker", daemon=True).start()

    def whereabouts(self) -> tuple[str, int]:
        """The machine's name, and the worker's process there."""
        return socket.gethostname(), self._process.pid

    def news(self, within_s: float) -> News:
        """Wait for a line, or the end; all that there is by then."""
        told: list[str] = []
        try:
            line = self._lines.get(timeout=within_s)
            while line is not None:
                told.append(line)
                line = self._lines.get_nowait()
        except Empty:
            return told, None
        self._lines.put(None)  # it stays the last word
        return told, self._process.wait()

    def send(self, number: int) -> None:
        """Send the worker a signal, if it still runs."""
        self._process.send_signal(number)

    def _read(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        with stream:
            for raw in stream:
                self._lines.put(raw.decode("utf-8", "replace").rstrip())
        self._lines.put(None)
