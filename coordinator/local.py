"""Every expert computed in this process: what the coordinator does while no worker holds anything."""

from __future__ import annotations

import numpy as np

import native
from coordinator.plan import LOCAL, plan_layer
from expert_worker.bank import ExpertBank
from protocol.messages import F32, I32, I64


class LocalExperts:
    """An `ExpertRunner` over the coordinator's own bank."""

    def __init__(self, bank: ExpertBank, experts: int) -> None:
        """`experts` is how many a layer has."""
        self._bank = bank
        self._owner = np.full(experts, LOCAL, np.int64)

    def run_layer(self, step: int, layer: int, rows: native.Rows, ids: I32, weights: F32, sums: I64) -> None:
        """Add every entry to `sums` (rows, width). RequestError for bad ids; ExpertError if it cannot be computed."""
        [part] = plan_layer(layer, ids, weights, self._owner)
        no_singles = np.empty((0, sums.shape[1]), np.float32)
        self._bank.run(layer, rows, part.expert, part.row, part.weight, -1 - part.row, no_singles, sums)
