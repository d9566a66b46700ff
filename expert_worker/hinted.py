"""Hints of the lookahead process, followed as far as this worker holds what they name."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from expert_worker.bank import ExpertBank
from expert_worker.hint_listener import HintListener
from protocol.geometry import Geometry
from protocol.holder.serve import Desk
from protocol.messages import Warm

log = logging.getLogger(__name__)


class Hinted:
    """A context manager: it listens while it is open."""

    def __init__(self, bank: ExpertBank, geometry: Geometry) -> None:
        """`bank` hears of hints in the listener's thread, for experts that are held."""
        self._bank = bank
        self._desk: Desk | None = None
        self._listener = HintListener(self.follow, layers=geometry.layers, experts=geometry.experts)

    def joined(self, desk: Desk) -> None:
        """A session has begun, or goes on under another membership."""
        before, self._desk = self._desk, desk
        if before is None or before.session != desk.session:
            self._bank.hints.new_session()
            self._listener.follow(desk.session)

    def follow(self, hint: Warm) -> None:
        """Have brought what is held of it, far away, and worth it. In the listener's thread."""
        desk = self._desk
        if desk is None or hint.session != desk.session:
            return
        held = desk.holdings.any_holds(hint.layer)
        if len(held):
            self._bank.warm(hint.layer, hint.experts[held[hint.experts] > 0], hint.step)

    def __enter__(self) -> Self:
        self._listener.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.close()
        for layer, score in self._bank.hints.by_layer().items():
            log.info("hints for layer %d: %s", layer, ", ".join(f"{name} {n}" for name, n in score.items() if n))
