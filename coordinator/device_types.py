"""What is used here of arrays and activation rows in a device's memory."""

from __future__ import annotations

from typing import Any, Protocol

import native


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
