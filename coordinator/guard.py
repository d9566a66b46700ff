"""Watching the processes that were started for one answer, while that answer is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from coordinator.children import Child
from coordinator.config import COORDINATOR, is_beside
from coordinator.restarts import BAD_SETTING
from protocol.errors import ExpertmeshError

STATUS_S = 5.0
"""Time for the coordinator to tell whether it is ready, asked only when a worker has ended."""


class Asked(Protocol):
    """What tells of the coordinator's state (coordinator.client.Client)."""

    def status(self, within_s: float, watch: Callable[[], None]) -> dict[str, Any] | None: ...


class Launched(Protocol):
    """What knows the processes (coordinator.launcher.Launcher)."""

    def ended(self) -> list[Child]: ...


class Guard:
    """Call it while waiting: ExpertmeshError when the answer cannot come any more.

    A worker may be lost once all have joined, what is beside the others at any time: the answer goes on without it, and
    `tell` gets a line for people.
    """

    def __init__(self, launched: Launched, asked: Asked, tell: Callable[[str], None]) -> None:
        self._launched = launched
        self._asked = asked
        self._tell = tell
        self._told: set[str] = set()

    def __call__(self) -> None:
        self._check_coordinator()
        for child in self._launched.ended():
            if child.name not in self._told:
                if is_beside(child.name):
                    self._tell(f"{_how(child)}; the answer goes on without it")
                else:
                    self._check_worker(child)
                self._told.add(child.name)

    def _check_coordinator(self) -> None:
        for child in self._launched.ended():
            if child.name == COORDINATOR:
                raise ExpertmeshError(_why(child))

    def _check_worker(self, child: Child) -> None:
        status = self._asked.status(STATUS_S, self._check_coordinator)
        if status is None or status.get("state") == "waiting":
            raise ExpertmeshError(_why(child))
        self._tell(f"{_how(child)}; the answer goes on without it")


def _why(child: Child) -> str:
    words = child.last_words() if child.exit_code() == BAD_SETTING else ""
    return words or _how(child)  # an error line is complete


def _how(child: Child) -> str:
    return f"{child.name} (process {child.pid}) {child.ended()}"
