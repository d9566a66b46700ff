"""Scenarios of small simulated clusters, without chance unless a test asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator.simulation.scenario import Costs, Kind, Scenario, Shape, Varied
from protocol.stock import Stock

COSTS = Costs(
    layer_s=1e-3,
    layer_row_s=1e-4,
    step_s=4e-3,
    step_row_s=1e-3,
    entry_s=0.8e-3,
    plan_s=1e-4,
    member_s=0.0,
    call_s=2e-4,
    answer_s=3e-4,
    control_s=0.0,
    byte_s=0.0,
)
SHAPE = Shape(stock=Stock(slot_bytes=(0, 1000, 1000), experts=8), used=2, width=256)
"""A dense layer, and two of 8 experts, of which a row uses 2."""


def workers(count: int, **change: Any) -> Kind:
    """So many that are alike in everything."""
    kind = Kind(
        name="w",
        count=count,
        entry_s=Varied(mean=0.6e-3),
        answer_s=Varied(mean=0.5e-3),
        round_trip_s=Varied(mean=2e-3),
    )
    return replace(kind, **change)


def scenario(*kinds: Kind, **change: Any) -> Scenario:
    """Of these workers."""
    return replace(Scenario(shape=SHAPE, costs=COSTS, kinds=kinds), **change)
