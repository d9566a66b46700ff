"""The trial of a worker's kernels: any model's can be tried, and it tells how long an expert of a row takes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from moe_models import tiny_model
from packs import pack_of

from protocol.holder import kernel_trial as trial
from protocol.messages import MAX_ENTRY_NS
from protocol.model import Model


@pytest.mark.parametrize("types", [("Q8_0",) * 3, ("F32", "F16", "BF16"), ("Q4_0", "Q5_1", "F16")])
@pytest.mark.parametrize("packed", [False, True])
def test_every_type_is_tried_as_it_lies_in_the_file(tmp_path: Path, types: tuple[str, str, str], packed: bool) -> None:
    gate, up, down = types
    path = tiny_model(tmp_path, gate_type=gate, up_type=up, down_type=down)
    with Model.open(pack_of(path, tmp_path / "pack.gguf") if packed else path) as model:
        began = time.perf_counter()
        found = trial.kernel_trial(model.layout, 1)
        assert 0 < found <= MAX_ENTRY_NS
        assert found * 1e-9 < time.perf_counter() - began


def test_an_expert_larger_than_the_memory_for_it_is_tried_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "WEIGHT_BYTES", 1)
    with Model.open(tiny_model(tmp_path)) as model:
        assert trial.kernel_trial(model.layout, 2) > 0


def test_the_fastest_call_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter([0.5, 0.008, 0.7])
    monkeypatch.setattr(trial, "_call_s", lambda *arguments: next(took))
    monkeypatch.setattr(trial, "TRIAL_S", 0.0)
    with Model.open(tiny_model(tmp_path)) as model:
        assert trial.kernel_trial(model.layout, 1) == round(8e6 / min(trial.AT_ONCE, 8))
