"""The scenario of a cluster that runs: costs and workers from what its coordinator reports of its layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.simulation.scenario import Costs, Kind, Varied

HALF_BELOW_P99 = 2.326
"""Standard deviations between the median of a normal distribution and its 99th percentile."""
LEAST_S = 1e-6
MOST_CHANCE = 0.5
"""What is beyond that is not one call's chance, but a machine that stood still, and all calls with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Tokens of one conversation, computed by workers that are alike."""

    layers: Mapping[str, float]
    """`LayerTimes.summary`."""
    expert_layers: int
    all_layers: int
    token_s: float
    """From token to token, the median."""
    calls: float
    """Of a layer."""
    entry_s: float
    """In a worker's kernels, for one expert of one row."""

    def _us(self, part: str, what: str = "p50") -> float:
        return self.layers[f"{part}_{what}_us"] * 1e-6

    @property
    def call_s(self) -> float:
        """That a layer takes beside kernels and the coordinator's own work: both ways, and in a worker's process."""
        return max(LEAST_S, self._us("total") - sum(map(self._us, ("plan", "send", "take", "kernel"))))

    @property
    def chance(self) -> float:
        """Standard deviation of the logarithm of that."""
        middle, high = self._us("wait"), self._us("wait", "p99")
        kernel = self._us("kernel")
        ratio = max(1.0, (high - kernel) / max(LEAST_S, middle - kernel))
        return min(MOST_CHANCE, math.log(ratio) / HALF_BELOW_P99)

    def costs(self, entry_s: float | None = None) -> Costs:
        """Of this coordinator. Its dense half is counted by the layer; `entry_s` is its local bank's."""
        dense_s = max(0.0, self.token_s - self.expert_layers * self._us("total"))
        return Costs(
            layer_s=dense_s / self.all_layers,
            layer_row_s=0.0,
            step_s=0.0,
            step_row_s=0.0,
            entry_s=self.entry_s if entry_s is None else entry_s,
            plan_s=self._us("plan"),
            call_s=self._us("send") / self.calls,
            answer_s=self._us("take") / self.calls,
        )

    def kind(self, count: int) -> Kind:
        """So many workers like these, on the coordinator's machine and from the same pages."""
        return Kind(
            name="worker",
            count=count,
            entry_s=Varied(mean=self.entry_s),
            answer_s=Varied(mean=0.0),
            round_trip_s=Varied(mean=self.call_s, within=self.chance),
            here=True,
            pages="here",
        )
