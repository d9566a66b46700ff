"""Where the time of a layer's experts goes: the last few thousand layers, and their percentiles."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

KEPT = 4096


class LayerTime(NamedTuple):
    """One layer's experts, in seconds."""

    plan: float
    """Taking in what came meanwhile, and deciding who computes what."""
    send: float
    """Building, encoding and handing over the calls, and launching what the device computes."""
    local: float
    """In the local bank, re-planned parts included."""
    wait: float
    """Waiting for answers."""
    device: float
    """Waiting for the device, when all else was done."""
    take: float
    """Receiving, decoding, checking and adding them."""
    total: float
    kernel: float
    """On the critical path: the busiest holder's time in its kernels."""


class LayerTimes:
    """A ring of LayerTime."""

    def __init__(self) -> None:
        self._ring: deque[LayerTime] = deque(maxlen=KEPT)

    def add(self, time: LayerTime) -> None:
        """Keep it; the oldest goes if there are too many."""
        self._ring.append(time)

    def summary(self, newest: int = KEPT) -> dict[str, float | int]:
        """Percentiles and means in microseconds over the `newest` layers, as far as they are kept.

        `overhead` is everything that is not kernel time on the critical path.
        """
        times = np.array(self._ring)[-newest:] if newest else np.empty(0)
        if not len(times):
            return {"layers": 0}
        columns = np.column_stack([times, times[:, -2] - times[:, -1]])
        report: dict[str, float | int] = {"layers": len(times)}
        rows = dict(zip(("p50", "p99"), np.percentile(columns, (50, 99), axis=0), strict=True))
        for what, row in (rows | {"mean": columns.mean(axis=0)}).items():
            for name, seconds in zip((*LayerTime._fields, "overhead"), row.tolist(), strict=True):
                report[f"{name}_{what}_us"] = round(seconds * 1e6, 1)
        return report
