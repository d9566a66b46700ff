"""What is used here of arrays and activation rows in a device's memory."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import native
from protocol.layout import ExpertLayout
from protocol.messages import F32, I32, U8


class Array(Protocol):
    """C-contiguous, in a device's memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def nbytes(self) -> int: ...
    def __getitem__(self, rows: slice, /) -> Array: ...
    def reshape(self, *shape: Any) -> Array: ...


class CudaRows(Protocol):
    """Twin of native.Rows, on a device."""

    @property
    def count(self) -> int: ...
    @property
    def columns(self) -> int: ...
    def host(self, quantised: bool) -> native.Rows: ...


class Device(Protocol):
    """A device, as far as it is used here."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array: ...
    def memory(self) -> tuple[int, int]: ...


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
