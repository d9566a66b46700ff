"""The sets of experts that a worker was assigned, and how it makes them ready."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ExpertError
from protocol.messages import U8, Assign, AssignFailed, AssignProgress, AssignReady

MAX_VERSIONS = 8
"""Placements that are kept although nothing was computed from them yet; of more, the oldest go."""


class Holdings:
    """Sets of experts by placement version. The control thread adds, the compute loop looks up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: dict[int, U8] = {}

    def add(self, placement: int, held: U8) -> None:
        """From now on `held` (layers, experts), 1 where an expert is held, is what this version means."""
        with self._lock:
            self._sets[placement] = held
            for oldest in sorted(self._sets)[:-MAX_VERSIONS]:
                del self._sets[oldest]

    def use(self, placement: int) -> U8 | None:
        """The set of this version, None if it is unknown. Older versions are forgotten: work has moved on."""
        with self._lock:
            held = self._sets.get(placement)
            if held is not None and len(self._sets) > 1:
                self._sets = {version: one for version, one in self._sets.items() if version >= placement}
            return held


class Preparer(Protocol):
    """What of a bank is needed here."""

    def prepare(self, layer: int, experts: NDArray[np.integer[Any]]) -> None:
        """Make experts of a layer ready; ExpertError if that cannot be."""


def prepare(
    assign: Assign, shape: tuple[int, int], bank: Preparer, holdings: Holdings
) -> Iterator[AssignProgress | AssignReady | AssignFailed]:
    """Make ready what is assigned, one layer for each message taken; the last one says how it ended.

    `shape` is (layers, experts) of the model.
    """
    if assign.held.shape != shape:
        reason = f"experts of {assign.held.shape} (layers, experts) assigned, the model has {shape}"
        yield AssignFailed(placement=assign.placement, reason=reason)
        return
    layers = shape[0]
    for layer in range(layers):
        try:
            bank.prepare(layer, np.flatnonzero(assign.held[layer]))
        except ExpertError as error:
            yield AssignFailed(placement=assign.placement, reason=str(error))
            return
        if layer < layers - 1:
            yield AssignProgress(placement=assign.placement, done=layer + 1, total=layers)
    holdings.add(assign.placement, assign.held)
    yield AssignProgress(placement=assign.placement, done=layers, total=layers)
    yield AssignReady(placement=assign.placement, experts=int(np.count_nonzero(assign.held)))
