"""Which experts a text needs, and models in which one of them is damaged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from local_engine import greedy, local_engine
from passing_experts import PassingExperts

from coordinator.dense_half import Rows
from coordinator.engine import ExpertRunner
from coordinator.sums import LayerSums
from protocol.messages import F32, I32
from protocol.model import Model
from protocol.quant_types import TensorType

Experts = set[tuple[int, int]]
"""Pairs of (layer, expert)."""


class _Note(PassingExperts):
    """An ExpertRunner that notes who is asked for."""

    def __init__(self, experts: ExpertRunner, seen: Experts) -> None:
        super().__init__(experts)
        self._seen = seen

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        self._seen.update((layer, int(expert)) for expert in ids.ravel())
        super().begin_layer(step, layer, rows, ids, weights, sums)


def experts_of(model: Path, prompt_ids: Sequence[int], tokens: int) -> Experts:
    """All that a prompt and its greedy answer of so many tokens are routed to."""
    seen: Experts = set()
    with local_engine(model, kv="f16", wrap=lambda experts: _Note(experts, seen)) as engine:
        greedy(engine, prompt_ids, tokens)
    return seen


def plant_nan(path: Path, layer: int, expert: int) -> None:
    """Make the scale of the first block of an expert's gate NaN."""
    with Model.open(path) as model:
        experts = model.layout.layers[layer]
    assert experts is not None
    gate = experts.gate
    assert gate.type == TensorType.Q4_K  # which begins a block with its scale, in fp16
    with path.open("r+b") as file:
        file.seek(gate.offset + expert * gate.expert_bytes)
        file.write(np.float16(np.nan).tobytes())
