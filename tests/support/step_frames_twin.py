"""The layout and the checks of step messages in plain Python: what native code must agree with."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.messages import MAX_ENTRIES_PER_ROW, MAX_ROWS, RunExperts, Sums
from protocol.step_frames import LARGE_ARRAY_BYTES, MAGIC, RUN_EXPERTS, SUMS


def frames(message: RunExperts | Sums) -> list[bytes]:
    """What a sound message looks like on the wire."""
    if isinstance(message, RunExperts):
        quantised = len(message.codes) > 0
        numbers = [message.placement, message.step, message.layer, message.attempt]
        width = (message.codes if quantised else message.values).shape[1]
        extents = [len(message.row), len(message.entry_expert), width, int(quantised)]
        arrays: list[NDArray[Any]] = [message.codes, message.scales, message.values, message.row]
        arrays += [message.entry_expert, message.entry_row, message.entry_weight]
        return lay_out(RUN_EXPERTS, message.session, numbers, extents, arrays)
    wide = len(message.sum64) > 0
    numbers = [message.step, message.layer, message.attempt, message.busy_us, message.wait_us]
    width = (message.sum64 if wide else message.sum48).shape[1]
    extents = [len(message.single_row), message.single.shape[1], len(message.sum_row), width, 8 if wide else 6]
    arrays = [message.single_row, message.single, message.sum_row, message.sum48, message.sum64]
    return lay_out(SUMS, message.session, numbers, extents, arrays)


def lay_out(
    kind: int, session: str, numbers: Sequence[int], extents: Sequence[int], arrays: Sequence[NDArray[Any]]
) -> list[bytes]:
    """A header, the small arrays behind it, and a frame for each large one; nothing is checked."""
    text = session.encode()
    first = struct.pack("<BBHI", MAGIC, kind, 0, len(text))
    first += struct.pack(f"<{len(numbers)}q{len(extents)}I", *numbers, *extents) + text
    own = []
    for array in arrays:
        if array.nbytes >= LARGE_ARRAY_BYTES:
            own.append(array.tobytes())
        elif array.nbytes:
            first += bytes(-len(first) % 8) + array.tobytes()
    return [first, *own]


def is_sound(message: RunExperts) -> bool:
    """Whether a RunExperts whose arrays have the right types contradicts itself nowhere."""
    rows, entries = len(message.row), len(message.entry_row)
    numbers = (message.placement, message.step, message.layer, message.attempt)
    if min(numbers) < 0 or not 1 <= rows <= MAX_ROWS or not 1 <= entries <= rows * MAX_ENTRIES_PER_ROW:
        return False
    if not entries == len(message.entry_expert) == len(message.entry_weight):
        return False
    if (len(message.codes), len(message.values)) not in ((rows, 0), (0, rows)):
        return False
    width = message.codes.shape[1] if len(message.codes) else 0
    if width % 32 or (len(message.codes) and message.scales.shape != (rows, width // 32)):
        return False
    if len(message.values) and message.scales.size:
        return False
    if message.row[0] < 0 or not (np.diff(message.row.astype(np.int64)) > 0).all():
        return False
    pairs = list(zip(message.entry_expert.tolist(), message.entry_row.tolist(), strict=True))
    if pairs != sorted(set(pairs)):
        return False
    return pairs[0][0] >= 0 and all(0 <= row < rows for _, row in pairs)
