"""The dense half of a step as the engine sees it: everything but the experts, on whatever device.

`dense.py` computes it on the CPU. Every implementation keeps to docs/arithmetic.md, row by row.
"""

from __future__ import annotations

from typing import Protocol

import native
from coordinator.sums import LayerSums
from coordinator.window import Window
from native.cuda import CudaRows
from protocol.messages import F32, I32

Rows = native.Rows | CudaRows
"""Activations that experts take, where the dense half has them."""


def host_rows(rows: Rows, quantised: bool) -> native.Rows:
    """The same rows in the machine's own memory, codes and scales or values: fetched once, however often asked for."""
    return rows if isinstance(rows, native.Rows) else rows.host(quantised)


class Cache(Protocol):
    """Keys and values of one sequence. A dense half makes them, and knows only its own."""

    @property
    def capacity(self) -> int:
        """Positions that it has room for."""


class DenseStep(Protocol):
    """One step under way: layer by layer attend, then feed_forward, or route, the experts and combine; at last logits.

    NonFiniteError(message, row) from any of them names a row of the window (of `rows`, in `logits`).
    """

    @property
    def sums(self) -> LayerSums:
        """Where the next layer's experts are added up; `combine` empties it again."""

    def attend(self, layer: int) -> None:
        """x += attention of x; keys and values of the rows are stored."""

    def feed_forward(self, layer: int) -> None:
        """x += what a dense layer has in place of experts."""

    def route(self, layer: int, quantise: bool) -> tuple[Rows, I32, F32]:
        """What the experts take, and which of them: activation rows, ids and weights (rows, k).

        With `quantise` the rows travel as int8 in this layer: one that cannot be quantised is noticed here.
        """

    def combine(self) -> None:
        """x += all that is in `sums`: rounded to fp32 once, however many experts there were."""

    def logits(self, rows: list[int]) -> F32:
        """Head of the rows named, a new array (len(rows), vocabulary)."""


class DenseHalf(Protocol):
    """The dense weights at work. One step at a time, in one thread."""

    def new_cache(self, positions: int) -> Cache:
        """An empty cache. RequestError if there is no room."""

    def begin(self, window: Window) -> DenseStep:
        """Embed the window's ids. A step that was not finished is forgotten; its caches are as they were."""
