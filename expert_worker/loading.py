"""How far a load of many bytes is, and how fast: for counters, and for people who wait for it."""

from __future__ import annotations

import logging
import time

from expert_worker.file_reader import Outcome
from expert_worker.sources.source import Counters

log = logging.getLogger(__name__)

PIECE_BYTES = 32 << 20
"""Read at one go: enough to keep a disk busy, and few enough that beats are not late."""
TELL_S = 2.0
"""Between two lines about a load that goes on."""
GIB = 1 << 30


class Loading:
    """One load, told about while it lasts."""

    def __init__(self, what: str, total: int, counters: Counters) -> None:
        """`total` bytes are to be loaded, as far as is known."""
        self._what = what
        self._total = total
        self._counters = counters
        self._bytes = self._us = 0
        self._began = self._told = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        """So much more."""
        self._bytes += outcome.bytes
        self._us += outcome.us
        self._counters.loaded_bytes += outcome.bytes
        self._counters.load_us += outcome.us
        self._counters.fallbacks += outcome.fallbacks
        if (now := time.monotonic()) - self._told >= TELL_S:
            self._told = now
            log.info("loading %s: %s of %.2f GiB", self._what, self._so_far(now), self._total / GIB)

    def end(self) -> None:
        """That was all."""
        if self._bytes:
            log.info("loaded %s: %s", self._what, self._so_far(time.monotonic()))
        self._bytes = 0

    def _so_far(self, now: float) -> str:
        """Wall time tells what a person waits for; the rate in reads tells whether it is the disk."""
        read = f", {self._bytes / GIB / (self._us * 1e-6):.2f} GiB/s in reads" if self._us else ""
        return f"{self._bytes / GIB:.2f} GiB in {now - self._began:.1f} s{read}"
