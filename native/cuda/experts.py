"""The expert feed-forward network on a device."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import native
from native.cuda.device import NO_FAULT, Array, Device, blocks_of, uploaded
from native.cuda.rows import FLOATS, THREADS, TYPE_NAMES, CudaRows, rows_of_block

I32: TypeAlias = NDArray[np.int32]
F32: TypeAlias = NDArray[np.float32]

GATE, UP, DOWN = range(3)
TOGETHER = 8
"""Entries of one expert that share a reading of its weights."""


class ExpertTable:
    """One layer's experts on a device: where each one's matrices lie, if they do."""

    def __init__(self, device: Device, gate_type: int, up_type: int, down_type: int, experts: int) -> None:
        """The types are ggml's, of all experts of the layer."""
        self.types = (gate_type, up_type, down_type)
        self.experts = experts
        self._device = device
        self._addresses = np.zeros((3, experts), np.uint64)
        self._on_device = uploaded(device, self._addresses)

    def admit(self, expert: int, gate: Array, up: Array, down: Array) -> None:
        """From the next run on, the expert's matrices are these; whoever admits keeps their memory until it evicts."""
        self._set(expert, [self._device.address(one) for one in (gate, up, down)])

    def evict(self, expert: int) -> None:
        """The expert is not to be run any more; what was launched before may run still."""
        self._set(expert, [0, 0, 0])

    def addresses(self, role: int) -> Array:
        """(3 - role, experts) u64: of the matrices from `role` (GATE, UP, DOWN) on."""
        return self._on_device[role:]

    def _set(self, expert: int, addresses: list[int]) -> None:
        self._addresses[:, expert] = addresses
        self._device.upload(self._addresses, self._on_device)


class FeedForward:
    """The network at work, with its scratch memory. Not for two threads at once."""

    def __init__(self, device: Device, width: int, hidden: int) -> None:
        """`width` columns in and out, `hidden` in between."""
        self._device = device
        self._width = width
        self._hidden = hidden
        self._no_faults = np.full(2, NO_FAULT, np.int32)
        self._faults = uploaded(device, self._no_faults)  # an activation row; an entry

    def run(
        self,
        table: ExpertTable,
        rows: CudaRows,
        entry_expert: I32,
        entry_row: I32,
        entry_weight: F32,
        entry_slot: I32,
        singles: Array,
        sums: Array,
    ) -> None:
        """Launch every entry, times its weight: into `singles[slot]` f32, or added to `sums[-1 - slot]` i64 if < 0.

        Entries (n,), on the host, ascend by expert, and every one's expert must be admitted. `check` tells the errors.
        """
        entries = len(entry_expert)
        if entries == 0:
            return
        tiles = tiles_of(entry_expert)
        together = 1 if tiles[2].max() == 1 else TOGETHER
        columns = (tiles.ravel(), entry_row, entry_slot, entry_weight.view(np.int32))
        plan = uploaded(self._device, np.concatenate(columns))  # in one copy
        ends = np.cumsum([len(column) for column in columns]).tolist()
        on_tiles, on_row, on_slot, on_weight = (
            plan[end - len(column) : end] for end, column in zip(ends, columns, strict=True)
        )
        middle = self._widen(table, rows, on_tiles, tiles.shape[1], on_row, entries, together)
        self._narrow(
            table, middle, on_tiles, tiles.shape[1], on_weight.view(np.float32), on_slot, together, singles, sums
        )

    def check(self) -> None:
        """Wait, and tell what was bad since the last time.

        EntryRangeError(message, entry): the lowest entry that is not finite or reaches 2**22, numbered as in its `run`.
        NonFiniteError(message, row): the first activation row that is not finite. `singles` and `sums` are then of no
        use.
        """
        row, entry = self._device.download(self._faults).tolist()
        if row == entry == NO_FAULT:
            return
        self._device.upload(self._no_faults, self._faults)
        if row != NO_FAULT:
            raise native.NonFiniteError(f"row {row} holds NaN or infinity", row)
        raise native.EntryRangeError(f"entry {entry} is not finite or its magnitude reaches 2^22", entry)

    def _widen(
        self, table: ExpertTable, rows: CudaRows, tiles: Array, count: int, row: Array, entries: int, together: int
    ) -> CudaRows:
        """silu(gate x) * (up x), a row for each entry."""
        gate, up, down = table.types
        device = self._device
        if not {gate, up} <= FLOATS:
            rows.quantise(self._faults[:1])
        both = device.empty((2 * entries, self._hidden), np.float32)
        for role, matrices in ((GATE, 2),) if gate == up else ((GATE, 1), (UP, 1)):
            kind = table.types[role]
            across, _, _ = blocks_of(self._hidden, rows_of_block(kind))
            device.launch(
                f"widen_{TYPE_NAMES[kind]}_{together}",
                (across, count, matrices),
                THREADS,
                table.addresses(role),
                np.int32(table.experts),
                np.int32(self._hidden),
                np.int32(self._width),
                *rows.forms(kind),
                tiles,
                row,
                np.int32(entries),
                both[role * entries :],
            )
        values = entries * self._hidden
        device.launch("silu_times", blocks_of(values, THREADS), THREADS, both, both[entries:], np.int64(values))
        middle = CudaRows.of_values(device, both[:entries])
        if down not in FLOATS:
            middle.quantise(self._faults[1:])
        return middle

    def _narrow(
        self,
        table: ExpertTable,
        middle: CudaRows,
        tiles: Array,
        count: int,
        weight: Array,
        slot: Array,
        together: int,
        singles: Array,
        sums: Array,
    ) -> None:
        kind = table.types[DOWN]
        across, _, _ = blocks_of(self._width, rows_of_block(kind))
        self._device.launch(
            f"narrow_{TYPE_NAMES[kind]}_{together}",
            (across, count, 1),
            THREADS,
            table.addresses(DOWN),
            np.int32(self._width),
            np.int32(self._hidden),
            *middle.forms(kind),
            tiles,
            weight,
            slot,
            singles,
            sums,
            self._faults[1:],
        )


def tiles_of(entry_expert: I32, together: int = TOGETHER) -> I32:
    """(3, tiles): expert, first entry and number of entries (at most `together`) of each tile; entries ascend."""
    starts = np.flatnonzero(np.diff(entry_expert, prepend=-1))
    lengths = np.diff(starts, append=len(entry_expert))
    each = -(-lengths // together)
    nth = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    first = np.repeat(starts, each) + nth * together
    count = np.minimum(np.repeat(starts + lengths, each) - first, together)
    return np.stack([entry_expert[first], first, count]).astype(np.int32)
