"""Looks once a second whether memory is short, and has a source give up copies then: better than being killed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from expert_worker.pressure import Reading, State, decide, room_to_grow
from expert_worker.pressure_watch import PressureWatch
from expert_worker.sources.source import Source
from protocol.errors import ExpertError
from protocol.wording import size

log = logging.getLogger(__name__)

LOOK_S = 1.0


class Tending:
    """For one source, which may have copies."""

    def __init__(self, source: Source, read: Callable[[], Reading] | None = None) -> None:
        """`read` tells how short memory is; by default that of this process."""
        self._source = source
        self._read = read or PressureWatch().read
        self._state = State()
        self._look_at = 0.0

    def tend(self, now: float) -> None:
        """Called again and again, `now` in seconds; does nothing most times."""
        counters = self._source.counters
        if now < self._look_at or not (counters.copied_bytes or counters.shed_bytes):
            return
        self._look_at = now + LOOK_S
        self._state, count, reason = decide(self._state, self._read(), counters.copied_bytes)
        if count:
            gone = self._source.shed(count)
            log.warning("%s: gave up %s of copies", reason, size(gone))
        elif counters.shed_bytes and (room := room_to_grow(self._state)):
            try:
                self._source.grow(room)
            except ExpertError as error:
                log.warning("no copies are made again: %s", error)
