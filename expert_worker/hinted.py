"""Experts whose pages are read when the lookahead process hints at them, and what those hints were worth."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from expert_worker.hint_listener import HintListener
from expert_worker.hints import HintBook
from protocol.geometry import Geometry
from protocol.holder.serve import Desk
from protocol.messages import I32, U8, RunExperts, Sums, Warm


class Experts(Protocol):
    """What is hinted at (expert_worker.bank.ExpertBank)."""

    def answer(self, work: RunExperts, wait_us: int) -> Sums: ...
    def make_room(self, wanted: U8, in_force: U8 | None) -> None: ...
    def prepare(self, layer: int, experts: NDArray[np.integer[Any]]) -> None: ...
    def missing(self, layer: int, experts: I32) -> U8:
        """1 for those of `experts` (n,) whose bytes are not in memory. From any thread."""

    def warm(self, layer: int, experts: I32) -> None:
        """Begin to read them. From any thread; returns before they are there."""


class Hinted:
    """The same experts. A context manager: it listens for hints while it is open."""

    def __init__(self, experts: Experts, geometry: Geometry, clock: Callable[[], float] = time.monotonic) -> None:
        self.book = HintBook()
        self._experts = experts
        self._chosen = geometry.experts_used
        self._clock = clock
        self._desk: Desk | None = None
        self._listener = HintListener(self.follow, layers=geometry.layers, experts=geometry.experts)

    def joined(self, desk: Desk) -> None:
        """A session has begun, or goes on under another membership."""
        before, self._desk = self._desk, desk
        if before is None or before.session != desk.session:
            self.book.new_session()
            self._listener.follow(desk.session)

    def follow(self, hint: Warm) -> None:
        """Have read what is held of it, far away, and worth it. In the listener's thread."""
        held = np.empty(0, np.uint8) if self._desk is None else self._desk.holdings.any_holds(hint.layer)
        if not len(held):
            return
        experts = hint.experts[held[hint.experts] > 0]
        missing = self._experts.missing(hint.layer, experts)
        wanted = self.book.want(hint.layer, experts, missing, hint.step, self._clock())
        if len(wanted):
            self._experts.warm(hint.layer, wanted)

    def answer(self, work: RunExperts, wait_us: int) -> Sums:
        """See `protocol.holder.answer.Runner`. What is asked for is what hints are measured by."""
        if self.book.begun:
            self._score(work)
        return self._experts.answer(work, wait_us)

    def make_room(self, wanted: U8, in_force: U8 | None) -> None:
        """See `protocol.holder.holdings.Preparer`."""
        self._experts.make_room(wanted, in_force)

    def prepare(self, layer: int, experts: NDArray[np.integer[Any]]) -> None:
        """See `protocol.holder.holdings.Preparer`."""
        self._experts.prepare(layer, experts)

    def __enter__(self) -> Self:
        self._listener.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.close()

    def _score(self, work: RunExperts) -> None:
        experts = np.unique(work.entry_expert)
        awaited = self.book.awaits(work.layer)
        missing = self._experts.missing(work.layer, experts) if awaited else np.zeros(len(experts), np.uint8)
        # Whoever shares memory is one of a team, and the rest of each row is asked of others.
        share = len(work.entry_expert) / (self._chosen * max(1, len(work.row)))
        self.book.asked(work.layer, experts, missing, work.step, self._clock(), share=min(1.0, share))
