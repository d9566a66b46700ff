"""Every expert computed in this process: what the coordinator does while no worker holds anything."""

from __future__ import annotations

import numpy as np

from coordinator.dense_half import Rows, host_rows
from coordinator.plan import LOCAL, plan_layer
from coordinator.sums import LayerSums
from expert_worker.bank import ExpertBank
from protocol.messages import F32, I32


class LocalExperts:
    """An `ExpertRunner` over the coordinator's own bank."""

    def __init__(self, bank: ExpertBank) -> None:
        self._bank = bank
        self._owner = np.full(bank.layout.experts, LOCAL, np.int64)
        self._quantised = {number: layer.quantised_input for number, layer in bank.layout.with_experts()}
        self._no_singles = np.empty((0, bank.layout.width), np.float32)

    def run_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        """Add every entry to `sums`. RequestError for bad ids; ExpertError if it cannot be computed."""
        [part] = plan_layer(layer, ids, weights, self._owner)
        own = host_rows(rows, self._quantised[layer])
        self._bank.run(layer, own, part.expert, part.row, part.weight, -1 - part.row, self._no_singles, sums.to_host())
