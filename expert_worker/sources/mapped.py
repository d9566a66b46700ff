"""Experts computed where they lie, in the files' mapping: the kernel decides which pages stay in memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import native
from expert_worker.expert_table import ExpertTable, Ranges
from expert_worker.sources.demand import Demand
from expert_worker.sources.source import WARM_WAIT_S, Counters, Experts, Source, distinct
from protocol.messages import I32, U8

PIECE = 4
"""Experts asked for at one go: beats are due meanwhile."""
ALERT_CALLS = 64
"""Messages for which pages are looked at before the kernels touch them, after some were missing. That takes time where
all are there, too: with 512 an answer of 48 tokens took a fifth longer."""
THREADS = 8
"""That wait for pages together: the disk is to have many requests at once, and page faults come one by one."""


class MappedSource(Source):
    """The page cache. Processes that map the same files share it, so that N workers do not take N copies.

    Pages are looked at only while some have been missing lately: where all experts fit in memory, nothing is asked.
    """

    name = "mapped"

    def __init__(
        self,
        table: ExpertTable,
        counters: Counters | None = None,
        *,
        demand: Demand | None = None,
        room: int | None = None,
    ) -> None:
        """`counters` and `demand` of whoever has this source for what it lacks.

        `room`: bytes of experts that are asked for when they are assigned, None for any number: more than memory has
        would displace each other.
        """
        super().__init__(table, counters)
        self._room = self._left = room
        self._demand = demand or Demand()
        self._warmed = False
        self._alert = ALERT_CALLS
        self._faults = _major_faults()

    def make_room(self, wanted: U8, rank: I32 | None) -> None:
        """The kernel makes room for pages; so many may be asked for anew."""
        self._left = self._room

    def prepare(self, layer: int, experts: Experts) -> Iterator[None]:
        """Ask for what is not in memory of these, as far as there is room."""
        for start in range(0, len(experts), PIECE):
            ranges, missing = self._absent(layer, experts[start : start + PIECE])
            if self._left is not None:
                self._left -= int(ranges.length.sum())
                if self._left < 0:
                    return
            lost = ranges.some(missing)
            if len(lost.length):
                native.will_need(lost.address, lost.length)
            yield

    def fetch(self, layer: int, experts: I32) -> U8 | None:
        """Wait for all missing pages together, instead of one after the other in the kernels."""
        faults = _major_faults()
        if faults != self._faults:
            self._alert, self._faults = ALERT_CALLS, faults
        elif self._alert == 0:
            self.counters.cache_hits += len(distinct(experts))  # no page was waited for lately
            return None
        self._alert -= 1
        return self.bring(layer, distinct(experts))

    def bring(self, layer: int, experts: I32) -> U8:
        """What `fetch` does, whether pages have been missing or not; (n,): 1 for those that had to be waited for."""
        ranges, missing = self._absent(layer, experts)
        late = missing
        if self._warmed:  # else nothing but what a message waits for is ever asked for
            late = missing | (native.arrived(ranges.address, ranges.length) == 0)
        absent = int(_any_role(missing).sum())
        self.counters.cache_hits += len(experts) - absent
        self.counters.file_reads += absent
        if late.any():
            began, lost = time.perf_counter(), ranges.some(late)
            with self._demand:
                native.populate(lost.address, lost.length, THREADS)
            self.counters.file_read_bytes += int(ranges.length[missing].sum())
            self.counters.file_read_us += int((time.perf_counter() - began) * 1e6)
            self._alert, self._faults = ALERT_CALLS, _major_faults()
        return _any_role(late)

    def missing(self, layer: int, experts: I32) -> U8:
        """Those of whose pages some are not in memory, nor asked for."""
        return _any_role(self._absent(layer, experts)[1])

    def check(self, layer: int, experts: I32) -> None:
        """See `Source`."""
        self._table.check(layer, experts)

    def warm(self, layer: int, experts: Experts) -> None:
        """Have the missing pages read. Waits for them, so that not all of a hint is before what a message needs."""
        if not self._demand.pass_by(WARM_WAIT_S):
            return
        ranges, missing = self._absent(layer, experts)
        lost = ranges.some(missing)
        if len(lost.length):
            self._warmed = True
            native.populate(lost.address, lost.length, THREADS)

    def _absent(self, layer: int, experts: Experts) -> tuple[Ranges, NDArray[np.bool_]]:
        """The ranges of these, and which of them memory has not wholly."""
        ranges = self._table.ranges(layer, experts)
        return ranges, native.resident(ranges.descriptor, ranges.offset, ranges.length) == 0


def _any_role(missing: NDArray[np.bool_]) -> U8:
    """(n,): 1 for experts of which a range, (3 n,), is missing."""
    found: U8 = np.logical_or.reduce(missing.reshape(-1, 3), axis=1).astype(np.uint8)
    return found


def _major_faults() -> int:
    """That this process has waited for a disk in."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
