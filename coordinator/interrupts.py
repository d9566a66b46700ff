"""Ctrl-C, SIGTERM and SIGHUP as one exception in the main thread, so that `finally` stops what was started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from protocol.startup import SIGNALS


class Interrupted(BaseException):
    """Somebody wants this program to end; like KeyboardInterrupt, no `except Exception` holds it up."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal ended."""
        return 128 + self.number


class Interrupts:
    """Raises Interrupted for the first signal; what comes while everything is being stopped only hurries that."""

    def __init__(self) -> None:
        self.hurried = False
        self._stopping = self._held = False
        self._waiting: int | None = None

    def stopping(self) -> None:
        """From now on signals raise nothing."""
        self._stopping = True

    @contextmanager
    def caught(self) -> Iterator[Interrupts]:
        """Within the block the signals raise Interrupted; only for the main thread.

        A signal that is ignored, as nohup does with SIGHUP, stays so.
        """
        before = {number: signal.getsignal(number) for number in SIGNALS}
        changed = [number for number, handler in before.items() if handler != signal.SIG_IGN]
        for number in changed:
            signal.signal(number, self._on_signal)
        try:
            yield self
        finally:
            for number in changed:
                signal.signal(number, before[number])

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block a signal waits for its end: while a library is loaded, an exception may get lost in it."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            if self._waiting is not None:
                self._on_signal(self._waiting, None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stopping:
            self.hurried = True
            return
        if self._held:
            self._waiting = number
            return
        self._stopping = True
        raise Interrupted(number)
