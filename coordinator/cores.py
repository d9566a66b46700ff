"""Which processor cores a launcher may bind its workers to: no two launchers of one machine bind to the same."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from coordinator.leases import take_lease


def usable_cores() -> tuple[int, ...]:
    """Numbers of the cores that this process may use, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


class CoreLeases:
    """The cores that this process holds; a context manager that gives them back."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def __enter__(self) -> CoreLeases:
        return self

    def __exit__(self, *error: object) -> None:
        self.give_back()

    def take(self, count: int, usable: Sequence[int]) -> tuple[int, ...]:
        """`count` of the usable cores that nobody holds, the first ones; none if there are not so many."""
        taken: list[int] = []
        for core in usable:
            if len(taken) < count and self._lease(core):
                taken.append(core)
        if len(taken) < count:
            self.give_back()
            return ()
        return tuple(taken)

    def give_back(self) -> None:
        """Hold none any more."""
        while self._held:
            self._held.pop().close()

    def _lease(self, core: int) -> bool:
        lease = take_lease(f"core-{core}")
        if lease is not None:
            self._held.append(lease)
        return lease is not None
