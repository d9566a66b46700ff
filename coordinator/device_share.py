"""The share of a layer that the coordinator's own slots compute, beside whatever the process does meanwhile."""

from __future__ import annotations

from contextlib import suppress
from typing import cast

import numpy as np

from coordinator.dense_half import Rows
from coordinator.plan import Part
from coordinator.sums import LayerSums
from native.cuda import CudaRows
from peer_gpu.slots import ExpertSlots
from protocol.errors import ExpertError


class DeviceShare:
    """Launches a part, and waits for it later; one at a time."""

    def __init__(self, slots: ExpertSlots) -> None:
        self._slots = slots
        self._no_singles = slots.device.empty((0, slots.layout.width), np.float32)
        self._under_way: tuple[int, Part] | None = None

    def launch(self, layer: int, rows: Rows, part: Part, sums: LayerSums) -> None:
        """Have all of `part` added to the device's sums; returns before it is. `rows` are on the device.

        What was launched before must have been waited for.
        """
        assert sums.device is not None  # slots are on the device of the dense half
        on_device = cast(CudaRows, rows)
        slots = -1 - part.row
        self._under_way = layer, part
        self._slots.run(layer, on_device, part.expert, part.row, part.weight, slots, self._no_singles, sums.device)

    def settle(self) -> None:
        """Wait for what is under way, if anything is. ExpertError as of the bank: the sums are of no use."""
        if self._under_way is not None:
            layer, part = self._under_way
            self._under_way = None
            self._slots.check(layer, part.expert)

    def abandon(self) -> None:
        """After a layer that failed elsewhere: wait, so that what is wrong here is not taken for the next layer's."""
        with suppress(ExpertError):
            self.settle()
