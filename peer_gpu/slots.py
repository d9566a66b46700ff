"""Experts in a device's memory: filled, evicted, run. One class for the coordinator's own GPU and for peers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import native
from native import cuda
from protocol.errors import ConfigError, ExpertError, RoomError
from protocol.gib import GIB
from protocol.holder.refusals import check_ids, check_there, in_words, layer_of, rows_of
from protocol.holder.watched_files import WatchedFiles
from protocol.layout import ExpertLayout, LayerExperts, slot_size
from protocol.messages import F32, I8, I32, U8
from protocol.model import Model
from protocol.stock import Stock

log = logging.getLogger(__name__)

RESERVE = GIB // 2
"""Bytes of a device's memory that are left alone at least, and at least a twentieth: others need some, too."""

TOGETHER = 1 << 27
"""Bytes of memory taken from the driver at one go: it deals in pieces of 2 MiB, and an expert may have a bit more."""


def room_on(device: cuda.Device, gib: float | None, layout: ExpertLayout, reserve: int | None = None) -> int:
    """Bytes for experts: `gib`, or what is free now less a reserve if that is None; never more than all of them take.

    The `reserve`, in bytes, is RESERVE or a twentieth of the device if that is None. ConfigError if it is not free.
    """
    free, total = device.memory()
    least = max(RESERVE, total // 20) if reserve is None else reserve
    wanted = max(0, free - least) if gib is None else int(gib * GIB)
    room = min(wanted, Stock.of(layout).bytes)
    if room > free:
        found = f"{free / GIB:.2f} of its {total / GIB:.2f} GiB are free"
        raise ConfigError(f"device {device.name}: {gib:g} GiB of experts were asked for, {found}")
    return room


def warn_if_none_fits(device: cuda.Device, room: int, layout: ExpertLayout) -> None:
    """Say so if not even one expert of a model fits into `room` bytes: nothing will be computed there."""
    smallest = min(layer.slot_bytes for _, layer in layout.with_experts())
    if room < smallest:
        log.warning("device %s: no expert fits: one takes %d bytes, and %d are for them", device.name, smallest, room)


class ExpertSlots:
    """Some experts of one model, each in an allocation of its own.

    Two threads may use it: one makes ready and evicts, the other runs. Residency has two phases (rule R4): an eviction
    shows in `held` before memory is given up, an admission when the copy is there. What is there stays good whatever
    becomes of the file.
    """

    def __init__(self, device: cuda.Device, model: Model, limit: int, *, recorded: bool = False) -> None:
        """`limit`: bytes of experts at most. `model` stays open for as long as the slots are used.

        `recorded` is for a device that one thread alone uses: see cuda.FeedForward.
        """
        layout = self.layout = model.layout
        self.limit = limit
        self.used = 0
        """Bytes of the experts that are there, or on their way."""
        self.held: U8 = np.zeros((len(layout.layers), layout.experts), np.uint8)
        """(layers, experts): 1 where the expert can be run. Replaced, never changed."""
        self.device = device
        self._data = {file.path.name: file.file.data for file in model.files.files}
        self._watched = WatchedFiles(file.file for file in model.files.files)
        self._there = model.there
        self._stock = Stock.of(layout)
        self._staged = np.zeros(max(self._stock.slot_bytes), np.uint8)
        self._taken = 0
        self._slots: dict[tuple[int, int], cuda.Array] = {}
        self._lock = threading.Lock()  # around what changes the tables, and what launches from them
        self._tables = {number: self._table(layer) for number, layer in layout.with_experts()}
        self._network = cuda.FeedForward(device, layout.width, layout.expert_width, recorded=recorded)

    # --- residency --------------------------------------------------------------------------------------------

    def make_room(self, wanted: U8, in_force: U8 | None) -> None:
        """Evict what is in neither of these sets (layers, experts), and what is not `wanted` if both do not fit.

        RoomError if `wanted` alone does not: then nothing is evicted.
        """
        if (needed := self._stock.bytes_of(wanted)) > self.limit:
            more = f"{needed - self.limit} more than the {self.limit} that there is room for on {self.device.name}"
            raise RoomError(f"{needed} bytes of experts are {more}")
        both: U8 = wanted if in_force is None else wanted | (in_force & self.held)
        self.keep(both if self._stock.bytes_of(both) <= self.limit else wanted)

    def keep(self, held: U8) -> None:
        """Evict whatever is not in `held` (layers, experts)."""
        gone = [(int(layer), int(expert)) for layer, expert in np.argwhere(self.held > held)]
        if not gone:
            return
        self.device.use()
        with self._lock:
            self.held = np.minimum(self.held, held)
            for layer, expert in gone:
                self._tables[layer].evict(expert)
        self.device.finish()  # calls that were launched before may read them until now
        for place in gone:
            self.used -= self._slots.pop(place).nbytes

    def prepare(self, layer: int, experts: NDArray[np.integer[Any]] | Sequence[int]) -> None:
        """Copy those of a layer's experts, which ascend, that are missing. No experts are none of any layer.

        ExpertError names the first that is out of range, not in this share, has no room or lies in a file that has
        changed; none of those that were missing is then there.
        """
        wanted = np.asarray(experts, np.int64)
        if len(wanted) == 0:
            return
        check_ids(self.layout, layer, wanted)
        check_there(self._there, layer, wanted)
        missing = wanted[self.held[layer, wanted] == 0].tolist()
        if not missing:
            return
        self._admit(layer, missing, self._filled)

    def pretend(self, layer: int, count: int) -> None:
        """Take zeros for a layer's first `count` experts, to try the kernels while nothing is held; `keep` evicts them.

        ExpertError if there is no room.
        """
        self._admit(layer, list(range(count)), self._zeros)

    def _admit(self, layer: int, missing: list[int], filled: Callable[[int, int], cuda.Array]) -> None:
        """Have slots with these experts, each `filled`."""
        self._check_room(layer, missing)
        self.device.use()
        self._take(len(missing) * self._stock.slot_bytes[layer])
        slots = {expert: filled(layer, expert) for expert in missing}
        self.device.finish()
        table, held = self._tables[layer], self.held.copy()
        held[layer, missing] = 1
        with self._lock:
            for expert, slot in slots.items():
                table.admit(expert, *self._matrices(layer, slot))
            self.held = held
        self._slots |= {(layer, expert): slot for expert, slot in slots.items()}
        self.used += sum(slot.nbytes for slot in slots.values())

    def close(self) -> None:
        """Give up all of it. May be called again."""
        self.keep(np.zeros_like(self.held))
        self._watched.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _table(self, layer: LayerExperts) -> cuda.ExpertTable:
        gate, up, down = (int(role.type) for role in layer.roles)
        return cuda.ExpertTable(self.device, gate, up, down, self.layout.experts)

    def _check_room(self, layer: int, missing: list[int]) -> None:
        size, free = self._stock.slot_bytes[layer], self.limit - self.used
        if size * len(missing) > free:
            first = missing[max(0, free // size)]
            reason = f"no room for its {size} bytes: {self.used} of {self.limit} are used on {self.device.name}"
            raise ExpertError(layer, first, reason)

    def _take(self, more: int) -> None:
        """Let the device's pool have memory for so many bytes more in large pieces, which it cuts slots from.

        If there is no such piece, the slots will be taken one by one.
        """
        short = self.used + more - self._taken
        if short <= 0:
            return
        left = min(self.limit, self._stock.bytes) - self._taken
        piece = max(short, min(left, TOGETHER))
        with suppress(cuda.DeviceError):
            self.device.empty((piece,), np.uint8)  # and given back to the pool
            self._taken += piece

    def _filled(self, layer: int, expert: int) -> cuda.Array:
        """A slot with the expert's bytes, which are known to be those of the file that was opened."""
        staged = self._staged[: self._stock.slot_bytes[layer]]
        start = 0
        roles = layer_of(self.layout, layer).roles
        for role in roles:
            source = role.offset + expert * role.expert_bytes
            data, place = (
                self._data[role.file][source : source + role.expert_bytes],
                staged[start:][: role.expert_bytes],
            )
            if role.packed:  # a device's kernels read rows
                native.unpack_rows(int(role.type), role.rows, role.columns, data, place)
            else:
                place[:] = data
            start += slot_size(role.expert_bytes)
        self._watched.check({role.file for role in roles}, layer, np.array([expert]))
        slot = self._empty(layer, expert)
        self.device.upload(staged, slot)
        return slot

    def _zeros(self, layer: int, expert: int) -> cuda.Array:
        slot = self._empty(layer, expert)
        self.device.zero(slot)
        return slot

    def _empty(self, layer: int, expert: int) -> cuda.Array:
        try:
            return self.device.empty((self._stock.slot_bytes[layer],), np.uint8)
        except cuda.DeviceError as error:
            raise ExpertError(layer, expert, str(error)) from None

    def _matrices(self, layer: int, slot: cuda.Array) -> tuple[cuda.Array, cuda.Array, cuda.Array]:
        """Gate, up and down in a slot."""
        gate, up, down = (role.expert_bytes for role in layer_of(self.layout, layer).roles)
        at_up = slot_size(gate)
        at_down = at_up + slot_size(up)
        return slot[:gate], slot[at_up : at_up + up], slot[at_down : at_down + down]

    # --- running ----------------------------------------------------------------------------------------------

    def rows(self, layer: int, codes: I8, scales: F32, values: F32) -> cuda.CudaRows:
        """Activations on the device: from `codes` (n, width) and `scales` (n, width / 32), or `values` (n, width).

        ExpertError if that is not the form in which this layer's activations travel, or they are none.
        """
        host = rows_of(self.layout, layer, codes, scales, values)
        try:
            return cuda.CudaRows.uploaded(self.device, host, layer_of(self.layout, layer).quantised_input)
        except cuda.DeviceError as error:
            raise ExpertError(layer, -1, str(error)) from None

    def run(
        self,
        layer: int,
        rows: cuda.CudaRows,
        entry_expert: I32,
        entry_row: I32,
        entry_weight: F32,
        entry_slot: I32,
        singles: cuda.Array,
        sums: cuda.Array,
    ) -> None:
        """Launch every entry, times its weight: into `singles[slot]`, or added to `sums[-1 - slot]` where that is < 0.

        Entries (n,), on the host, ascend by expert; singles (any, width) f32 and sums (any, width) i64 are on the
        device. ExpertError for an expert that is out of range or not held; `check` tells what else was wrong.
        """
        check_ids(self.layout, layer, entry_expert)
        with self._lock:
            missing = entry_expert[self.held[layer][entry_expert] == 0]
            if len(missing):
                raise ExpertError(layer, int(missing[0]), f"not held on {self.device.name}")
            try:
                self._network.run(
                    self._tables[layer], rows, entry_expert, entry_row, entry_weight, entry_slot, singles, sums
                )
            except cuda.DeviceError as error:
                with suppress(native.EntryRangeError, native.NonFiniteError):
                    self._network.check()  # what was launched must not be taken for a part of the next call
                raise ExpertError(layer, -1, str(error)) from None

    def check(self, layer: int, entry_expert: I32) -> None:
        """Wait for what was launched. ExpertError names the expert that gave a number out of range, as a bank does."""
        try:
            self._network.check()
        except (native.EntryRangeError, native.NonFiniteError) as error:
            raise in_words(layer, error, entry_expert) from None
