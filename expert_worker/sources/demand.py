"""Reads that a message waits for go first: whoever reads for later does so while no message waits."""

from __future__ import annotations

import threading
from types import TracebackType


class Demand:
    """Entered by the compute loop while it waits for bytes. For one such loop, and one that reads for later."""

    def __init__(self) -> None:
        self._none = threading.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._none.clear()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._none.set()

    def pass_by(self, within_s: float) -> bool:
        """Wait until there is none; False if there still is."""
        return self._none.wait(within_s)
