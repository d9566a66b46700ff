"""One RunExperts in, one answer out: pure but for the kernels."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

import native
from protocol.errors import ExpertError
from protocol.messages import F32, I8, I32, I64, MAX_REASON, U8, RunExperts, Sums, WorkFailed


class ActivationRows(Protocol):
    """Activations in the form that a runner's kernels take."""

    @property
    def columns(self) -> int: ...


Rows = TypeVar("Rows", bound=ActivationRows)


class Runner(Protocol[Rows]):
    """What computes experts, wherever they lie: `expert_worker.bank.ExpertBank` says it in full."""

    def rows(self, layer: int, codes: I8, scales: F32, values: F32) -> Rows: ...

    def run(
        self,
        layer: int,
        rows: Rows,
        entry_expert: I32,
        entry_row: I32,
        entry_weight: F32,
        entry_slot: I32,
        singles: F32,
        sums: I64,
    ) -> None: ...


class Slots(NamedTuple):
    """Where each entry's weighted row goes."""

    entry_slot: I32
    """(entries,): index into the single rows, or -1 - index into the sums."""
    single_row: I32
    """The window's rows with one entry, ascending."""
    sum_row: I32
    """Those with more, ascending."""


def answer(work: RunExperts, bank: Runner[Rows], held: U8 | None, wait_us: int = 0) -> Sums | WorkFailed:
    """Run the experts if all of them are in `held` (layers, experts), the set of the placement that `work` names.

    None means that the placement is not known. `wait_us` goes into the answer.
    """
    try:
        _check_held(work, held)
        rows = bank.rows(work.layer, work.codes, work.scales, work.values)
        slots = assign_slots(work.layer, work.entry_row, work.row)
        single = np.empty((len(slots.single_row), rows.columns), np.float32)
        sums = np.zeros((len(slots.sum_row), rows.columns), np.int64)
        began = time.perf_counter_ns()
        bank.run(work.layer, rows, work.entry_expert, work.entry_row, work.entry_weight, slots.entry_slot, single, sums)
        busy_us = (time.perf_counter_ns() - began) // 1000
    except ExpertError as error:
        return _failed(work, error)
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


def assign_slots(layer: int, entry_row: I32, row: I32) -> Slots:
    """A single row for each row with one entry, a sum for each with more; ExpertError for more than a sum holds.

    `row` (rows,) are the window's rows, ascending, `entry_row` each entry's index into them.
    """
    try:
        return Slots(*native.assign_slots(entry_row, row))
    except ValueError as error:
        raise ExpertError(layer, -1, str(error)) from None


def pack(sums: I64) -> tuple[U8, I64]:
    """Sums (rows, width) as they travel: in 48 bits if all fit, else in 64; the other form has no rows."""
    width = sums.shape[1]
    packed = native.pack48(sums) if len(sums) else None
    if packed is None:
        return np.empty((0, width, 6), np.uint8), sums
    return packed, np.empty((0, width), np.int64)


def _check_held(work: RunExperts, held: U8 | None) -> None:
    first = int(work.entry_expert[0])
    if held is None:
        raise ExpertError(work.layer, first, f"placement {work.placement} is not known here")
    layers, experts = held.shape
    if work.layer >= layers:
        raise ExpertError(work.layer, -1, f"the model has layers 0 to {layers - 1}")
    if work.entry_expert[-1] >= experts:
        raise ExpertError(work.layer, int(work.entry_expert[-1]), f"the model has experts 0 to {experts - 1}")
    missing = native.first_not_held(held[work.layer], work.entry_expert)
    if missing >= 0:
        raise ExpertError(work.layer, missing, f"not held under placement {work.placement}")


def _failed(work: RunExperts, error: ExpertError) -> WorkFailed:
    return WorkFailed(
        session=work.session,
        step=work.step,
        layer=work.layer,
        attempt=work.attempt,
        expert=error.expert,
        reason=str(error)[:MAX_REASON],
    )
