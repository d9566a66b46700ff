"""The trial of the coordinator's own work, on tiny models: it ends, and every figure is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from moe_models import write_model

from coordinator.own_costs import own_costs
from protocol.model import Model


@pytest.mark.parametrize("dense_layers", [0, 1])
def test_everything_takes_some_time(tmp_path: Path, dense_layers: int) -> None:
    path = write_model(tmp_path / "m.gguf", layers=3, dense_layers=dense_layers, ff_dense=64 * dense_layers)
    with Model.open(path) as model:
        costs = own_costs(model, 1, steps=2)
    assert costs.layer_s > 0
    assert costs.step_s > 0
    assert costs.entry_s > 0
    assert min(costs.call_s, costs.answer_s, costs.apart_s) > 0
    assert costs.layer_row_s >= 0
    assert costs.step_row_s >= 0
    assert costs.dense_s(3) == costs.step_s + 3 * costs.layer_s
