"""What all sources with copies have in common: an expert comes from its copy, or else from the files' mapping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from expert_worker.expert_table import ExpertTable
from expert_worker.sources.demand import Demand
from expert_worker.sources.mapped import MappedSource
from expert_worker.sources.source import Experts, Source, distinct
from protocol.messages import I32, U8


class PlacedSource(Source):
    """Copies that are placed in the table, by whoever extends this, and the mapping for the rest.

    Copies are checked before they are placed, so only what a message takes from the mapping is checked after it.
    """

    def __init__(self, table: ExpertTable, demand: Demand | None = None) -> None:
        super().__init__(table)
        self._rest = MappedSource(table, self.counters, demand=demand, room=0)
        self._from_files = False  # whether something of the message in hand is mapped

    def fetch(self, layer: int, experts: I32) -> U8 | None:
        """Have what is not copied brought in, all of it at once."""
        wanted = distinct(experts)
        self._table.lease(layer, wanted.tolist())
        copied = self._table.placed[layer, wanted].astype(np.bool_)
        hits = int(np.count_nonzero(copied))
        self._from_files = hits < len(wanted)
        self.counters.copy_hits += hits
        if not self._from_files or (rest := self._rest.fetch(layer, wanted[~copied])) is None:
            return None
        far = np.zeros(len(wanted), np.uint8)
        far[~copied] = rest
        return far

    def check(self, layer: int, experts: I32) -> None:
        """See `Source`."""
        if self._from_files:
            self._table.check(layer, experts)

    def missing(self, layer: int, experts: I32) -> U8:
        """Of what is not copied, those of whose pages some are not in memory."""
        found, far = np.zeros(len(experts), np.uint8), self._uncopied(layer, experts)
        found[far] = self._rest.missing(layer, experts[far])
        return found

    def warm(self, layer: int, experts: Experts) -> None:
        """Have the pages of what is not copied read."""
        self._rest.warm(layer, experts[self._uncopied(layer, experts)])

    def _uncopied(self, layer: int, experts: Experts) -> NDArray[np.bool_]:
        """(n,): those that have no copy."""
        found: NDArray[np.bool_] = np.equal(self._table.placed[layer, experts], 0)
        return found
