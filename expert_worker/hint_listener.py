"""A thread that hears what the lookahead process of this machine predicts, and hands it on: advice, and no more.

There need be no such process. It may come, go, be slow or talk nonsense: then there are fewer hints, or bad ones.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from protocol.endpoints import hints_endpoint
from protocol.errors import ConfigError
from protocol.messages import Warm
from protocol.wire import Subscriber

log = logging.getLogger(__name__)

LOOK_S = 0.1
"""How soon the end, or another session, is noticed while no hints come."""
CLOSE_S = 2.0
"""How long the end waits for a hint that is being followed."""


class HintListener:
    """Listens for one session after the other. A context manager: it starts the thread, and ends it."""

    def __init__(self, warm: Callable[[Warm], None], *, layers: int, experts: int) -> None:
        """`warm` is called in the listener's thread, for hints that name nothing which a model of this size lacks."""
        self.heard = 0
        """Hints handed on."""
        self.dropped = 0
        """Messages that were none, or not for this session or model; and hints on which `warm` failed."""
        self._warm = warm
        self._size = (layers, experts)
        self._sessions: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hints", daemon=True)

    def follow(self, session: str) -> None:
        """From now on hints of this session count. From any thread; never waits."""
        self._sessions.put(session)

    def close(self) -> None:
        """Hear nothing any more. May be called again."""
        self._sessions.put(None)
        self._thread.join(CLOSE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        session = self._sessions.get()
        while session is not None:
            session = self._listen(session)

    def _listen(self, session: str) -> str | None:
        """Hear one session out; the next one, or None at the end."""
        try:
            subscriber = Subscriber(hints_endpoint(session))
        except ConfigError as error:
            log.warning("no hints can be had: %s", error)
            return self._sessions.get()
        before = self.dropped
        with subscriber:
            while True:
                message = subscriber.receive(LOOK_S)
                other = self._next(session)
                if other != session:
                    return other
                if message is not None:
                    before += not self._take(message, session)
                self.dropped = before + subscriber.dropped

    def _next(self, session: str | None) -> str | None:
        """The latest to follow; None, the end, is final."""
        while session is not None:
            try:
                session = self._sessions.get_nowait()
            except Empty:
                break
        return session

    def _take(self, message: object, session: str) -> bool:
        layers, experts = self._size
        if not isinstance(message, Warm) or message.session != session or message.layer >= layers:
            return False
        if len(message.experts) and message.experts[-1] >= experts:  # they ascend
            return False
        try:
            self._warm(message)
        except Exception:
            log.debug("a hint could not be followed", exc_info=True)
            return False
        self.heard += 1
        return True
