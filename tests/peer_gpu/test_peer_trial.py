"""A peer's slots and runner are tried before it says Hello, on the emulated device here; tests/gpu has a GPU do it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from moe_models import tiny_model
from packs import pack_of
from slot_trials import check_trial

from peer_gpu.runner import SlotRunner
from peer_gpu.slots import ExpertSlots
from peer_gpu.trial import slot_trial
from protocol.holder import kernel_trial
from protocol.messages import RunExperts
from protocol.model import Model


@pytest.fixture(scope="module")
def device() -> EmulatedDevice:
    return EmulatedDevice()


@pytest.mark.parametrize("types", [("Q8_0",) * 3, ("F32", "F16", "BF16"), ("Q4_0", "Q5_1", "F16")])
@pytest.mark.parametrize("packed", [False, True])
def test_every_type_is_tried_and_nothing_is_held_afterwards(
    tmp_path: Path, device: EmulatedDevice, types: tuple[str, str, str], packed: bool
) -> None:
    gate, up, down = types
    path = tiny_model(tmp_path, gate_type=gate, up_type=up, down_type=down)
    check_trial(device, pack_of(path, tmp_path / "pack.gguf") if packed else path)


def test_the_first_layer_may_be_dense(tmp_path: Path, device: EmulatedDevice) -> None:
    check_trial(device, tiny_model(tmp_path, dense_layers=1, ff_dense=64))


@pytest.mark.parametrize("experts", [0, 1, 3])
def test_no_more_is_tried_than_there_is_room_for(tmp_path: Path, device: EmulatedDevice, experts: int) -> None:
    with Model.open(tiny_model(tmp_path)) as model:
        size = next(model.layout.with_experts())[1].slot_bytes
        with ExpertSlots(device, model, size * experts + size - 1) as slots:
            assert (slot_trial(slots, SlotRunner(device, slots)) > 0) == (experts > 0)
            assert slots.used == 0


def test_a_device_that_is_full_all_the_same_is_not_tried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = EmulatedDevice()
    with Model.open(tiny_model(tmp_path)) as model, ExpertSlots(device, model, 1 << 20) as slots:
        runner = SlotRunner(device, slots)
        device.room = 1
        assert slot_trial(slots, runner) == 0
        assert "nobody knows how fast cuda:0 is: layer 0, expert 0: device cuda:0: no room for" in caplog.text
        assert slots.used == 0


def test_the_fastest_call_counts_by_the_answers_own_account(
    tmp_path: Path, device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    took_us = iter([500, 80, 700])
    monkeypatch.setattr(kernel_trial, "TRIAL_S", 0.0)
    with Model.open(tiny_model(tmp_path)) as model, ExpertSlots(device, model, 1 << 20) as slots:
        runner = SlotRunner(device, slots)
        asked: list[RunExperts] = []

        def answer(work: RunExperts, wait_us: int) -> SimpleNamespace:
            asked.append(work)
            assert slots.held[work.layer, work.entry_expert].all()
            return SimpleNamespace(busy_us=next(took_us))

        monkeypatch.setattr(runner, "answer", answer)
        found = slot_trial(slots, runner)
        each = len(asked[0].entry_expert)
        assert found == round(80_000 / each)
        assert all(len(np.unique(work.entry_expert)) == each for work in asked)
