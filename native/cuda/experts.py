"""The expert feed-forward network on a device."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import native
from native.cuda.device import NO_FAULT, THREADS, Array, Device, Replays, blocks_of, uploaded
from native.cuda.rows import FLOATS, SUB, TYPE_NAMES, CudaRows, packed_bytes, rows_of_block

I32: TypeAlias = NDArray[np.int32]
F32: TypeAlias = NDArray[np.float32]

GATE, UP, DOWN = range(3)
TOGETHER = 8
"""Entries of one expert that share a reading of its weights."""
FEWEST, FEW = 8, 64
"""Numbers of entries, powers of 2, for which memory is kept and launches are recorded."""


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

    def __init__(self, device: Device, width: int, hidden: int, *, recorded: bool = False) -> None:
        """`width` columns in and out, `hidden` in between.

        `recorded`: a few entries over the same arrays, table after table, are one launch (Device.record); nobody else
        may use the device while `run` does.
        """
        self._device = device
        self._width = width
        self._hidden = hidden
        self._replays = Replays(device) if recorded else None
        self._scratch: dict[int, _Scratch] = {}
        self._entries = 0
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

        Entries (n,), on the host, ascend by expert, and every one's expert must be admitted. `check` tells the errors;
        it is to be called before the next run.
        """
        self._entries = len(entry_expert)
        if self._entries == 0:
            return
        tiles = tiles_of(entry_expert)
        scratch = self._scratch_for(self._entries, tiles.shape[1])
        self._device.upload(scratch.filled(tiles, entry_row, entry_slot, entry_weight), scratch.plan)
        together = 1 if tiles[2].max() == 1 else TOGETHER

        def launch() -> None:
            self._widen(table, rows, scratch, together)
            self._narrow(table, scratch, together, singles, sums)

        if self._replays is None or self._entries > FEW:
            launch()
            return
        if not set(table.types[:DOWN]) <= FLOATS:
            rows.quantise(self._faults[:1])
        forms = (rows.codes if rows.quantised else None, rows.values)
        arrays = (table.addresses(GATE), *forms, singles, sums)
        places = [None if array is None else self._device.address(array) for array in arrays]
        self._replays.run((scratch.entries, together, rows.count, *places), launch)

    def check(self) -> None:
        """Wait, and tell what was bad in the last run.

        EntryRangeError(message, entry): the lowest entry that is not finite or reaches 2**22.
        NonFiniteError(message, row): the first activation row that is not finite. `singles` and `sums` are then of no
        use.
        """
        row, entry = self._device.download(self._faults).tolist()
        if row == entry == NO_FAULT:
            return
        self._device.upload(self._no_faults, self._faults)
        if row != NO_FAULT:
            raise native.NonFiniteError(f"row {row} holds NaN or infinity", row)
        if entry < self._entries:  # what is behind them in the scratch memory is nobody's
            raise native.EntryRangeError(f"entry {entry} is not finite or its magnitude reaches 2^22", entry)

    def _scratch_for(self, entries: int, tiles: int) -> _Scratch:
        """Memory for so many; where they are few, for some more, and kept."""
        if entries > FEW:
            return _Scratch(self._device, entries, tiles, self._hidden)
        capacity = max(FEWEST, 1 << (entries - 1).bit_length())
        if capacity not in self._scratch:
            scratch = self._scratch[capacity] = _Scratch(self._device, capacity, capacity, self._hidden)
            self._device.zero(scratch.both)  # a part of it may belong to no entry
        return self._scratch[capacity]

    def _widen(self, table: ExpertTable, rows: CudaRows, scratch: _Scratch, together: int) -> None:
        """silu(gate x) * (up x), a row for each entry."""
        gate, up, down = table.types
        if not {gate, up} <= FLOATS:
            rows.quantise(self._faults[:1])
        for role, matrices in ((GATE, 2),) if gate == up else ((GATE, 1), (UP, 1)):
            kind = table.types[role]
            across, _, _ = blocks_of(self._hidden, rows_of_block(kind))
            self._device.launch(
                f"widen_{TYPE_NAMES[kind]}_{together}",
                (across, scratch.tiles, matrices),
                THREADS,
                table.addresses(role),
                np.int32(table.experts),
                np.int32(self._hidden),
                np.int32(self._width),
                *rows.forms(kind),
                scratch.plan,
                scratch.row,
                np.int32(scratch.entries),
                scratch.both[role * scratch.entries :],
            )
        values = scratch.entries * self._hidden
        self._device.launch(
            "silu_times",
            blocks_of(values, THREADS),
            THREADS,
            scratch.both,
            scratch.both[scratch.entries :],
            np.int64(values),
        )
        scratch.middle.quantised = False
        if down not in FLOATS:
            scratch.middle.quantise(self._faults[1:])

    def _narrow(self, table: ExpertTable, scratch: _Scratch, together: int, singles: Array, sums: Array) -> None:
        kind = table.types[DOWN]
        across, _, _ = blocks_of(self._width, rows_of_block(kind))
        self._device.launch(
            f"narrow_{TYPE_NAMES[kind]}_{together}",
            (across, scratch.tiles, 1),
            THREADS,
            table.addresses(DOWN),
            np.int32(self._width),
            np.int32(self._hidden),
            *scratch.middle.forms(kind),
            scratch.plan,
            scratch.weight,
            scratch.slot,
            singles,
            sums,
            self._faults[1:],
        )


class _Scratch:
    """What one run needs in the device's memory, for up to so many entries in up to so many tiles."""

    def __init__(self, device: Device, entries: int, tiles: int, hidden: int) -> None:
        self.entries, self.tiles = entries, tiles
        self._host = np.zeros(3 * (tiles + entries), np.int32)
        self.plan = device.empty(self._host.shape, np.int32)  # the tiles in three columns, then the entries in three
        self.row, self.slot, weight = (self.plan[at : at + entries] for at in self._columns())
        self.weight = weight.view(np.float32)
        self.both = device.empty((2 * entries, hidden), np.float32)  # what gate and up give
        packed = device.empty((packed_bytes(entries, hidden),), np.uint8) if hidden % SUB == 0 else None
        self.middle = CudaRows.of_values(device, self.both[:entries], packed)

    def filled(self, tiles: I32, row: I32, slot: I32, weight: F32) -> I32:
        """The plan as it is uploaded; unused tiles have no entries."""
        on_tiles = self._host[: 3 * self.tiles].reshape(3, self.tiles)
        on_tiles[:, : tiles.shape[1]] = tiles
        on_tiles[2, tiles.shape[1] :] = 0
        for at, column in zip(self._columns(), (row, slot, weight.view(np.int32)), strict=True):
            self._host[at : at + len(column)] = column
        return self._host

    def _columns(self) -> tuple[int, int, int]:
        """Where the numbers of the entries begin in the plan."""
        begin = 3 * self.tiles
        return begin, begin + self.entries, begin + 2 * self.entries


def tiles_of(entry_expert: I32, together: int = TOGETHER) -> I32:
    """(3, tiles): expert, first entry and number of entries (at most `together`) of each tile; entries ascend."""
    new = entry_expert[1:] != entry_expert[:-1]
    if new.all():  # most runs: one row
        each_alone = np.ones((3, len(entry_expert)), np.int32)
        each_alone[0], each_alone[1] = entry_expert, np.arange(len(entry_expert))
        return each_alone
    starts = np.flatnonzero(np.concatenate([[True], new]))
    lengths = np.diff(starts, append=len(entry_expert))
    each = -(-lengths // together)
    nth = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    first = np.repeat(starts, each) + nth * together
    count = np.minimum(np.repeat(starts + lengths, each) - first, together)
    return np.stack([entry_expert[first], first, count]).astype(np.int32)
