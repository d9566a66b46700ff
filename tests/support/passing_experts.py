"""An ExpertRunner that hands everything on: what tests put between an engine and its experts is made of it."""

from __future__ import annotations

from coordinator.dense_half import Rows
from coordinator.engine import ExpertRunner
from coordinator.sums import LayerSums
from protocol.messages import F32, I32


class PassingExperts:
    """To be overridden in part."""

    def __init__(self, experts: ExpertRunner) -> None:
        self.experts = experts

    @property
    def halves_from(self) -> int | None:
        return self.experts.halves_from

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        self.experts.begin_layer(step, layer, rows, ids, weights, sums)

    def finish_layer(self, step: int) -> None:
        self.experts.finish_layer(step)

    def abandon(self) -> None:
        self.experts.abandon()
