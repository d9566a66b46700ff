"""Slots as a holder's compute loop runs them: what comes from the network goes to the device, the sums come back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from native import cuda
from peer_gpu.slots import ExpertSlots
from protocol.messages import F32, I8, I32, I64, MAX_ROWS, U8


class SlotRunner:
    """`protocol.holder.process.Experts` over slots, with memory for the answer to one call."""

    def __init__(self, device: cuda.Device, slots: ExpertSlots) -> None:
        """DeviceError if there is no room for MAX_ROWS rows of each kind."""
        width = slots.layout.width
        self._device = device
        self._slots = slots
        self._singles = device.empty((MAX_ROWS, width), np.float32)
        self._sums = device.empty((MAX_ROWS, width), np.int64)

    def make_room(self, wanted: U8, in_force: U8 | None) -> None:
        """See ExpertSlots."""
        self._slots.make_room(wanted, in_force)

    def prepare(self, layer: int, experts: NDArray[np.integer[Any]]) -> None:
        """See ExpertSlots."""
        self._slots.prepare(layer, experts)

    def rows(self, layer: int, codes: I8, scales: F32, values: F32) -> cuda.CudaRows:
        """See ExpertSlots."""
        return self._slots.rows(layer, codes, scales, values)

    def run(
        self,
        layer: int,
        rows: cuda.CudaRows,
        entry_expert: I32,
        entry_row: I32,
        entry_weight: F32,
        entry_slot: I32,
        singles: F32,
        sums: I64,
    ) -> None:
        """Compute every entry, times its weight: into `singles[slot]`, or added to `sums[-1 - slot]` where that is < 0.

        Both are on the host, with MAX_ROWS rows at most. ExpertError as of a bank; singles and sums are then of no use.
        """
        single, several = len(singles), len(sums)
        if several:
            self._device.zero(self._sums[:several])
        self._slots.run(layer, rows, entry_expert, entry_row, entry_weight, entry_slot, self._singles, self._sums)
        self._slots.check(layer, entry_expert)
        if single:
            singles[:] = self._device.download(self._singles[:single])
        if several:
            sums += self._device.download(self._sums[:several])
