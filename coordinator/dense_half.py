"""The dense half of a step as the engine sees it: everything but the experts, on whatever device.

`dense.py` computes it on the CPU, `dense_cuda.py` on a GPU. Both keep to docs/arithmetic.md, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import native
from coordinator.sequence import Cache
from coordinator.sums import LayerSums
from coordinator.window import Window
from native.cuda import CudaRows
from protocol.messages import F32, I32

MOST_TOGETHER = 2
"""Windows that are begun together at most."""

Rows = native.Rows | CudaRows
"""Activations that experts take, where the dense half has them."""


def host_rows(rows: Rows, quantised: bool) -> native.Rows:
    """The same rows in the machine's own memory, codes and scales or values: fetched once, however often asked for."""
    return rows if isinstance(rows, native.Rows) else rows.host(quantised)


class DenseStep(Protocol):
    """A window under way: layer by layer attend, then feed_forward, or route, the experts and combine.

    NonFiniteError(message, row) from any of them names a row of the window.
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


class DenseHalf(Protocol):
    """The dense weights at work. One step at a time, in one thread."""

    def new_cache(self, positions: int) -> Cache:
        """An empty cache. RequestError if there is no room."""

    def begin(self, windows: Sequence[Window]) -> Sequence[DenseStep]:
        """Embed the ids of one or two windows, MOST_TOGETHER, that go through the layers side by side.

        Where they continue one sequence, the first goes through each layer before the second. Rows that were begun
        before, and not finished, are forgotten; their caches are as they were.
        """

    def logits(self, rows: list[int]) -> F32:
        """Head of the rows named, counted through all windows begun together: a new array (len(rows), vocabulary).

        NonFiniteError(message, index into `rows`).
        """
