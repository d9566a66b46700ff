"""Where a layer's experts are added up: on the fixed-point grid, by several holders, in one memory or in two."""

from __future__ import annotations

from dataclasses import dataclass

from native.cuda import Array
from protocol.messages import I64


@dataclass(slots=True, kw_only=True, eq=False)
class LayerSums:
    """The weighted expert outputs of a layer are the sum of both arrays. Integers: it is no matter who adds where."""

    host: I64
    """(rows, width), zeroed: what workers, and kernels on the CPU, add to."""
    device: Array | None = None
    """(rows, width) int64, zeroed: what kernels of the coordinator's own device add to, if it has one."""
    host_used: bool = False
    """Whether anything may have been added to `host`."""

    def to_host(self) -> I64:
        """`host`, for somebody who adds to it."""
        self.host_used = True
        return self.host
