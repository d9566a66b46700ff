"""The message that asks a holder for its part of a layer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import native
from coordinator.plan import Part
from protocol.messages import F32, I8, RunExperts

_NO_CODES = np.empty((0, 0), np.int8)
_NO_FLOATS = np.empty((0, 0), np.float32)


class Activations(NamedTuple):
    """Of all rows of a window, in the form in which they travel: codes with scales, or values; the others are empty."""

    codes: I8
    scales: F32
    values: F32

    @classmethod
    def of(cls, rows: native.Rows, quantised: bool) -> Activations:
        """`quantised`: as the layer's experts take them."""
        return cls(*rows.quantise(), _NO_FLOATS) if quantised else cls(_NO_CODES, _NO_FLOATS, rows.values())


def call_for(
    part: Part, activations: Activations, rows: int, *, session: str, placement: int, step: int, layer: int
) -> RunExperts:
    """A part of a window of so many rows, with the activations that its holder needs, and no others."""
    codes, scales, values = activations
    row, index = part.distinct_rows(rows)
    if len(row) < rows:
        codes, scales = (codes[row], scales[row]) if len(codes) else (codes, scales)
        values = values[row] if len(values) else values
    return RunExperts(
        session=session,
        placement=placement,
        step=step,
        layer=layer,
        attempt=part.attempt,
        codes=codes,
        scales=scales,
        values=values,
        row=row,
        entry_expert=part.expert,
        entry_row=index,
        entry_weight=part.weight,
    )
