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

    def mean(self) -> LayerTime:
        """Of the layers kept, in seconds; zeros if there are none."""
        return LayerTime(*np.mean(self._ring or [[0.0] * len(LayerTime._fields)], axis=0).tolist())

    def summary(self) -> dict[str, float | int]:
        """Percentiles in microseconds over the layers kept.

        `overhead` is everything that is not kernel time on the critical path.
        """
        if not self._ring:
            return {"layers": 0}
        times = np.array(self._ring)
        columns = np.column_stack([times, times[:, -2] - times[:, -1]])
        report: dict[str, float | int] = {"layers": len(times)}
        for percent, row in zip((50, 99), np.percentile(columns, (50, 99), axis=0), strict=True):
            for name, seconds in zip((*LayerTime._fields, "overhead"), row.tolist(), strict=True):
                report[f"{name}_p{percent}_us"] = round(seconds * 1e6, 1)
        return report
