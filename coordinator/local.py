"""Every expert computed in this process, on its device and CPU: there are no workers."""

from __future__ import annotations

import numpy as np

from coordinator.dense_half import Rows, host_rows
from coordinator.device_share import DeviceShare
from coordinator.placement import place
from coordinator.plan import DEVICE, LOCAL, Part, plan_layer
from coordinator.sums import LayerSums
from expert_worker.bank import ExpertBank
from peer_gpu.slots import ExpertSlots
from protocol.messages import F32, I32
from protocol.stock import Stock


class LocalExperts:
    """An `ExpertRunner` over the coordinator's own bank, and its slots if it has any."""

    def __init__(self, bank: ExpertBank, slots: ExpertSlots | None = None) -> None:
        """What `slots` hold now is theirs for good."""
        layout = bank.layout
        own = np.zeros((len(layout.layers), layout.experts), np.uint8) if slots is None else slots.held
        self._owner = place(0, Stock.of(layout), own, ()).owner
        self._bank = bank
        self._share = None if slots is None else DeviceShare(slots)
        self._quantised = {number: layer.quantised_input for number, layer in layout.with_experts()}
        self._no_singles = np.empty((0, layout.width), np.float32)

    halves_from = None
    """Windows stay whole: nobody else computes meanwhile."""

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        """Add every entry to `sums`. RequestError for bad ids; ExpertError if it cannot be computed."""
        parts = {part.holder: part for part in plan_layer(layer, ids, weights, self._owner[layer])}
        local, on_device = parts.get(LOCAL), parts.get(DEVICE)
        if local is not None:
            host_rows(rows, self._quantised[layer])  # fetched before the device has more to do
        if on_device is not None:
            assert self._share is not None
            self._share.launch(layer, rows, on_device, sums)
        if local is not None:
            self._compute(layer, rows, local, sums)

    def finish_layer(self, step: int) -> None:
        """Wait for the device. ExpertError if it could not compute its part."""
        if self._share is not None:
            self._share.settle()

    def abandon(self) -> None:
        """What the device does is of no use any more."""
        if self._share is not None:
            self._share.abandon()

    def _compute(self, layer: int, rows: Rows, part: Part, sums: LayerSums) -> None:
        own, slots = host_rows(rows, self._quantised[layer]), -1 - part.row
        self._bank.run(layer, own, part.expert, part.row, part.weight, slots, self._no_singles, sums.to_host())
