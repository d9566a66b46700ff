"""What the trial of a peer's device must come to, on an emulated device or a real one."""

from __future__ import annotations

import time
from pathlib import Path

from native import cuda
from peer_gpu.runner import SlotRunner
from peer_gpu.slots import ExpertSlots
from peer_gpu.trial import slot_trial
from protocol.messages import MAX_ENTRY_NS
from protocol.model import Model

ROOM = 1 << 30


def check_trial(device: cuda.Device, path: Path) -> float:
    """Seconds of a second trial; the first one may compile. Nothing is held afterwards, and all can be."""
    device.use()
    with Model.open(path) as model, ExpertSlots(device, model, ROOM) as slots:
        runner = SlotRunner(device, slots)
        slot_trial(slots, runner)
        began = time.perf_counter()
        found = slot_trial(slots, runner)
        took_s = time.perf_counter() - began
        assert 0 < found <= MAX_ENTRY_NS
        assert found * 1e-9 < took_s
        assert slots.used == 0
        assert not slots.held.any()
        for number, _ in model.layout.with_experts():
            slots.prepare(number, range(model.layout.experts))
        return took_s
