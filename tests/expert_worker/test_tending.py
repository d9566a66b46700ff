"""Copies are given up when memory is short, and made again when it has not been for long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from open_bank import open_bank
from source_cases import EXPERTS, LAYERS, SOURCES, make_ready, small_model, sums_of

from expert_worker.pressure import Reading
from expert_worker.tending import Tending

MIB = 1 << 20


@dataclass
class Machine:
    """A machine whose memory is what a test says."""

    room: int = 1024 * MIB
    at_s: float = 0.0

    def read(self) -> Reading:
        return Reading(at_s=self.at_s, limit=1024 * MIB, room=self.room)


@pytest.mark.parametrize("source", ["all copied", "many slots", "shared"])
def test_short_memory_takes_copies_and_no_bit_changes(tmp_path: Path, source: str) -> None:
    path, machine = small_model(tmp_path), Machine()
    with open_bank(path) as plain, open_bank(path, source=SOURCES[source]) as bank:
        tending = Tending(bank.source, machine.read)
        make_ready(bank)
        expected = [sums_of(plain, layer, list(range(EXPERTS))) for layer in range(LAYERS)]
        for layer in range(LAYERS):
            np.testing.assert_array_equal(sums_of(bank, layer, list(range(EXPERTS))), expected[layer])
        tending.tend(1.0)
        assert bank.counts()["shed_bytes"] == 0
        machine.room, machine.at_s = -MIB, 2.0
        tending.tend(1.5)  # too early
        assert bank.counts()["shed_bytes"] == 0
        tending.tend(2.0)
        counts = bank.counts()
        assert counts["shed_bytes"] > 0
        assert counts["copied_experts"] == 0 or source == "many slots"
        for layer in range(LAYERS):
            np.testing.assert_array_equal(sums_of(bank, layer, list(range(EXPERTS))), expected[layer])


def test_copies_come_back_when_there_has_been_room_for_long(tmp_path: Path) -> None:
    machine = Machine()
    with open_bank(small_model(tmp_path), source=SOURCES["all copied"]) as bank:
        tending = Tending(bank.source, machine.read)
        make_ready(bank)
        machine.room = -MIB
        tending.tend(0.0)
        assert bank.counts()["copied_experts"] == 0
        machine.room = 1024 * MIB
        for second in range(1, 30):
            machine.at_s = float(second)
            tending.tend(machine.at_s)
        assert bank.counts()["copied_experts"] == 0
        for second in range(30, 300):
            machine.at_s = float(second)
            tending.tend(machine.at_s)
        assert bank.counts()["copied_experts"] == LAYERS * EXPERTS
