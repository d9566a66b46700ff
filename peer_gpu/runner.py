"""Slots as a holder's compute loop runs them: what comes from the network goes to the device, the sums come back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native import cuda
from peer_gpu.slots import ExpertSlots
from protocol.errors import ExpertError
from protocol.holder.answer import Slots, assign_slots, pack
from protocol.messages import F32, I32, I64, MAX_ROWS, U8, RunExperts, Sums

PIECE = 4
"""Experts copied to the device at one go: beats are due meanwhile."""


class SlotRunner:
    """`protocol.holder.process.Experts` over slots, with memory for the answer to one call."""

    def __init__(self, device: cuda.Device, slots: ExpertSlots) -> None:
        """DeviceError if there is no room for MAX_ROWS rows of each kind."""
        width = slots.layout.width
        self._device = device
        self._slots = slots
        self._singles = device.empty((MAX_ROWS, width), np.float32)
        self._sums = device.empty((MAX_ROWS, width), np.int64)

    @property
    def source_name(self) -> str:
        """Slots."""
        return "vram"

    def counts(self) -> dict[str, int]:
        """Nothing: slots do not change while work is done."""
        return {}

    def tend(self, now: float) -> None:
        """Nothing to look after."""

    def make_room(self, wanted: U8, in_force: U8 | None, rank: I32 | None) -> None:
        """See ExpertSlots. All that is wanted has room, so the `rank` does not matter."""
        self._slots.make_room(wanted, in_force)

    def prepare(self, layer: int, experts: NDArray[np.integer[Any]]) -> Iterator[None]:
        """See ExpertSlots; PIECE experts for each item taken."""
        for start in range(0, len(experts), PIECE):
            self._slots.prepare(layer, experts[start : start + PIECE])
            yield

    def stage(self, layer: int, leaves: int, comes: int) -> Iterator[None]:
        """Slots are assigned, each with its room."""
        raise ExpertError(layer, comes, "experts in a GPU's memory are assigned, not exchanged")

    def discard(self, layer: int, expert: int) -> None:
        """Nothing is ever staged."""

    def answer(self, work: RunExperts, wait_us: int) -> Sums:
        """See `protocol.holder.answer.Runner`; MAX_ROWS rows at most."""
        rows = self._slots.rows(work.layer, work.codes, work.scales, work.values)
        slots = assign_slots(work.layer, work.entry_row, work.row)
        began = time.perf_counter_ns()
        single, sums = self._run(work, rows, slots)
        busy_us = (time.perf_counter_ns() - began) // 1000
        sum48, sum64 = pack(sums)
        return Sums(
            session=work.session,
            step=work.step,
            layer=work.layer,
            attempt=work.attempt,
            single_row=slots.single_row,
            single=single,
            sum_row=slots.sum_row,
            sum48=sum48,
            sum64=sum64,
            busy_us=busy_us,
            wait_us=wait_us,
        )

    def _run(self, work: RunExperts, rows: cuda.CudaRows, slots: Slots) -> tuple[F32, I64]:
        """Single rows and sums, on the host."""
        single, several = len(slots.single_row), len(slots.sum_row)
        if several:
            self._device.zero(self._sums[:several])
        self._slots.run(
            work.layer,
            rows,
            work.entry_expert,
            work.entry_row,
            work.entry_weight,
            slots.entry_slot,
            self._singles,
            self._sums,
        )
        self._slots.check(work.layer, work.entry_expert)
        width = self._slots.layout.width
        return (
            self._device.download(self._singles[:single]) if single else np.empty((0, width), np.float32),
            self._device.download(self._sums[:several]) if several else np.empty((0, width), np.int64),
        )
