"""RunExperts and Sums in frames: what every layer sends is laid out, found and checked by native code, in one go.

docs/protocol.md tells the layout; `codec` is who uses this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import native
from protocol.messages import RunExperts, Sums

MAGIC = 0xC1
"""The first byte of a step message; no msgpack begins with it."""
RUN_EXPERTS, SUMS = 1, 2
"""Its second byte."""
LARGE_ARRAY_BYTES = 64 << 10
"""An array from this size on has a frame of its own; smaller ones share one."""

Frame: TypeAlias = bytes | memoryview


def encode(message: RunExperts | Sums) -> list[Frame]:
    """TypeError for a field of another type or an array that is not contiguous, ValueError for what contradicts."""
    if isinstance(message, Sums):
        first, large = native.encode_sums(
            message.session,
            message.step,
            message.layer,
            message.attempt,
            message.single_row,
            message.single,
            message.sum_row,
            message.sum48,
            message.sum64,
            message.busy_us,
            message.wait_us,
        )
        return [first, *_own_frames(message)] if large else [first]
    first, large = native.encode_run_experts(
        message.session,
        message.placement,
        message.step,
        message.layer,
        message.attempt,
        message.codes,
        message.scales,
        message.values,
        message.row,
        message.entry_expert,
        message.entry_row,
        message.entry_weight,
    )
    return [first, *_own_frames(message)] if large else [first]


def decode(frames: Sequence[Frame]) -> RunExperts | Sums:
    """ValueError for frames that are not exactly one of the two."""
    kind = frames[0][1] if len(frames[0]) > 1 else 0
    if kind == RUN_EXPERTS:
        return native.decode_run_experts(RunExperts, list(frames))
    if kind == SUMS:
        return native.decode_sums(Sums, list(frames))
    raise ValueError(f"unknown kind {kind} of a step message")


def _own_frames(message: RunExperts | Sums) -> list[Frame]:
    """The large arrays, where they lie."""
    if isinstance(message, Sums):
        arrays = (message.single_row, message.single, message.sum_row, message.sum48, message.sum64)
        return [array.data.cast("B") for array in arrays if array.nbytes >= LARGE_ARRAY_BYTES]
    parts = (message.codes, message.scales, message.values, message.row)
    entries = (message.entry_expert, message.entry_row, message.entry_weight)
    return [array.data.cast("B") for array in (*parts, *entries) if array.nbytes >= LARGE_ARRAY_BYTES]
