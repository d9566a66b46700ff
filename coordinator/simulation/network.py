"""The network: how long a message is on its way. Messages of one line arrive in the order in which they were sent."""

from __future__ import annotations

import numpy as np

from coordinator.simulation.scenario import Varied


class Port:
    """One direction of a machine's line: bytes pass one after another."""

    def __init__(self, bytes_per_s: Varied, rng: np.random.Generator) -> None:
        """How fast its bytes pass is drawn anew for each message."""
        self._bytes_per_s = bytes_per_s
        self._rng = rng
        self._free_at = 0.0

    def through(self, when: float, count: int) -> float:
        """When so many bytes that are there at `when` have passed."""
        self._free_at = max(self._free_at, when) + count / self._bytes_per_s.drawn(self._rng)
        return self._free_at


class OneWay:
    """One direction between the coordinator and a worker."""

    def __init__(self, ports: tuple[Port, Port], delay_s: Varied, rng: np.random.Generator) -> None:
        """A message passes both `ports` at the same time, piece by piece, and is then on its way for `delay_s`."""
        self._ports = ports
        self._delay_s = delay_s
        self._rng = rng
        self._last = 0.0

    def arrival(self, when: float, count: int) -> float:
        """When a message of so many bytes arrives that is sent at `when`."""
        passed = max(port.through(when, count) for port in self._ports)
        self._last = max(self._last, passed + self._delay_s.drawn(self._rng))
        return self._last
