"""Whether this machine's processors are there: arithmetic out of caches on several threads, over that on one.

Near the number of threads when they are; near 1 when the host lets them share a core, or others use them. A virtual
machine changes between the two within seconds, so this is looked at before and after whatever is timed.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

import native

Q8_0 = 8
COLUMNS, ROWS_A_THREAD, ACTIVATIONS = 256, 32, 1024
PAIRS = 15
"""Runs of either kind in one check, in turns; a run takes about a millisecond."""
GOOD = 0.85
"""Of the number of threads: a ratio that counts as undisturbed."""


class MachineCheck:
    """Holds what the check computes, so that a look is short."""

    def __init__(self, threads: int) -> None:
        """`threads`: as many as the busiest of what is timed."""
        self.threads = threads
        rows = ROWS_A_THREAD * threads
        codes = np.ones(rows * COLUMNS // 32 * 34, np.uint8)  # no value is special to integer arithmetic
        self._weights = native.Weights(codes, Q8_0, 1, rows, COLUMNS)
        self._activations = native.Rows(np.ones((ACTIVATIONS, COLUMNS), np.float32))
        self._out = np.empty((ACTIVATIONS, rows), np.float32)
        self._one, self._all = native.Pool(1), native.Pool(threads)

    def ratio(self) -> float:
        """The speed of all threads over that of one: the median of pairs."""
        return statistics.median(self._seconds(self._one) / self._seconds(self._all) for _ in range(PAIRS))

    def settled(self, within_s: float) -> float:
        """The first ratio that is good, or the last one when the time is over."""
        deadline = time.monotonic() + within_s
        while (found := self.ratio()) < GOOD * self.threads and time.monotonic() < deadline:
            pass
        return found

    def _seconds(self, pool: native.Pool) -> float:
        began = time.perf_counter()
        native.matmul(pool, self._weights, 0, self._activations, self._out)
        return time.perf_counter() - began
