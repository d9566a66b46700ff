"""One RunExperts in, one answer out: pure but for the kernels."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

import native
from protocol.errors import ExpertError
from protocol.messages import I32, I64, MAX_REASON, U8, RunExperts, Sums, WorkFailed


class Runner(Protocol):
    """What computes experts, wherever they lie."""

    @property
    def source_name(self) -> str:
        """Where they lie, in a word."""

    def counts(self) -> dict[str, int]:
        """What has been counted of where they came from; empty if nothing is."""

    def answer(self, work: RunExperts, wait_us: int) -> Sums:
        """Every entry, times its weight, summed by row. `wait_us` goes into the answer.

        ExpertError names the expert that is out of range, gives a number out of range, or lies in a file that has
        changed; or none, for activations that are none of this layer's.
        """


class Slots(NamedTuple):
    """Where each entry's weighted row goes."""

    entry_slot: I32
    """(entries,): index into the single rows, or -1 - index into the sums."""
    single_row: I32
    """The window's rows with one entry, ascending."""
    sum_row: I32
    """Those with more, ascending."""


def answer(work: RunExperts, experts: Runner, held: U8 | None, wait_us: int = 0) -> Sums | WorkFailed:
    """Run the experts if all of them are in `held` (layers, experts), the set of the placement that `work` names.

    None means that the placement is not known. `wait_us` goes into the answer.
    """
    try:
        _check_held(work, held)
        return experts.answer(work, wait_us)
    except ExpertError as error:
        return _failed(work, error)


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
    if held is None:
        raise ExpertError(work.layer, int(work.entry_expert[0]), f"placement {work.placement} is not known here")
    layers, experts = held.shape
    if work.layer >= layers:
        raise ExpertError(work.layer, -1, f"the model has layers 0 to {layers - 1}")
    missing = native.first_not_held(held, work.layer, work.entry_expert)
    if missing >= 0:
        most = int(work.entry_expert[-1])  # they ascend
        if most >= experts:
            raise ExpertError(work.layer, most, f"the model has experts 0 to {experts - 1}")
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
