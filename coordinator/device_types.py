"""What is used of the coordinator's own slots (peer_gpu.slots), until they are there."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from native.cuda import Array, CudaRows, Device
from protocol.layout import ExpertLayout
from protocol.messages import F32, I32, U8


class ExpertSlots(Protocol):
    """Experts in a device's memory."""

    @property
    def device(self) -> Device: ...
    @property
    def layout(self) -> ExpertLayout: ...
    @property
    def limit(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def held(self) -> U8: ...
    def prepare(self, layer: int, experts: NDArray[np.integer[Any]]) -> None: ...
    def run(
        self,
        layer: int,
        rows: CudaRows,
        entry_expert: I32,
        entry_row: I32,
        entry_weight: F32,
        entry_slot: I32,
        singles: Array,
        sums: Array,
    ) -> None: ...
    def check(self, layer: int, entry_expert: I32) -> None: ...
    def close(self) -> None: ...
