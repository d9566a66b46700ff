"""Copies in memory of this process: of all assigned experts, of the hottest within a budget, or of whatever fits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from expert_worker.copies import Copies, Copy, Key, allocate, bytes_for
from expert_worker.copy_plan import CopyPlan
from expert_worker.expert_table import ExpertTable
from expert_worker.file_reader import FileReader
from expert_worker.loading import PIECE_BYTES, Loading
from expert_worker.locking import LockResult
from expert_worker.sources.placed import PlacedSource
from expert_worker.sources.source import Account, Experts
from protocol.messages import I32, U8

log = logging.getLogger(__name__)

Lock = Callable[[U8], LockResult]


class Planner(Account, Protocol):
    """Decides which experts are copied, and keeps account of it with the others of this machine."""

    def plan(self, sizes: tuple[int, ...], wanted: U8, rank: I32 | None, copied_bytes: int) -> CopyPlan:
        """Of these (layers, experts), each taking `sizes` by layer. RoomError if all must be copied and cannot be."""


class CopiedSource(PlacedSource):
    """Copies of what was planned; the rest comes from the files' mapping."""

    def __init__(self, table: ExpertTable, planner: Planner, *, name: str = "copies", lock: Lock | None = None) -> None:
        """`lock` keeps memory from being taken for anything else, as far as the system lets us."""
        super().__init__(table)
        self.name = name
        self._planner = planner
        self._copies = Copies(table)
        self._reader = FileReader(table)
        self._lock = lock
        self._layers = len(table.layout.layers)
        shape = (self._layers, table.layout.experts)
        self._planned: NDArray[np.bool_] = np.zeros(shape, np.bool_)
        self._rank: I32 | None = None
        self._left_over = False
        """Whether there may be copies that are not planned, since they could not be given up."""
        self._locked: dict[Key, int] = {}
        self._given_up: list[Key] = []
        """The coldest first."""
        self._loading = Loading("copies", 0, self.counters)

    def make_room(self, wanted: U8, rank: I32 | None) -> None:
        """Plan the copies, and give up those that are not planned any more."""
        sizes = tuple(bytes_for(self._table.sizes(n)) if n in self._table else 0 for n in range(self._layers))
        plan = self._planner.plan(sizes, wanted, rank, self._copies.bytes)
        log.info("%s", plan.note)
        self._planned, self._rank = plan.copied, rank
        self._given_up = []
        self._give_up_unplanned()
        self._loading = Loading("copies", max(0, plan.bytes - self._copies.bytes), self.counters)
        self._count()

    def prepare(self, layer: int, experts: Experts) -> Iterator[None]:
        """Copy what is planned of these, and ask for the rest as `MappedSource` does."""
        chosen = self._planned[layer, experts]
        new = [expert for expert in experts[chosen].tolist() if (layer, expert) not in self._copies]
        piece = max(1, PIECE_BYTES // self._table.blob_bytes(layer))
        for start in range(0, len(new), piece):
            if not self._copy(layer, new[start : start + piece]):
                break
            yield
        yield from self._rest.prepare(layer, experts[self._table.placed[layer, experts] == 0])

    def exchange(self, layer: int, leaves: int, comes: int) -> None:
        """Both have the place in the plan, or among what was given up, that `leaves` has."""
        self._planned[layer, comes] |= self._planned[layer, leaves]
        if (layer, leaves) in self._given_up:
            self._given_up.insert(self._given_up.index((layer, leaves)), (layer, comes))

    def discard(self, layer: int, expert: int) -> None:
        """It has no place any more."""
        self._planned[layer, expert] = False
        if (layer, expert) in self._given_up:
            self._given_up.remove((layer, expert))
        self._give_up_unplanned()
        self._count()

    def settle(self) -> None:
        """Give up what was leased when it was discarded."""
        if self._left_over:
            self._give_up_unplanned()
            self._count()

    def shed(self, count: int) -> int:
        """Give up the coldest copies, which come from the files from then on."""
        gone = 0
        for layer, expert in sorted(self._copies, key=self._coldness, reverse=True):
            if gone >= count:
                break
            copy = self._take(layer, expert)
            if copy is not None:
                gone += copy.memory.nbytes
                self._planned[layer, expert] = False
                self._given_up.append((layer, expert))
        self.counters.shed_bytes += gone
        self._count()
        return gone

    def grow(self, count: int) -> None:
        """Copy the hottest again of what was given up, a piece at a time."""
        taken = 0
        while self._given_up:
            layer, expert = self._given_up[-1]
            taken += (size := bytes_for(self._table.sizes(layer)))
            if taken > count or PIECE_BYTES < taken != size:  # one at least, however large
                return
            self._given_up.pop()
            self._planned[layer, expert] = True
            self._copy(layer, [expert])

    def close(self) -> None:
        """Give up all copies and what was promised."""
        for layer, expert in self._copies:
            self._take(layer, expert)
        self._reader.close()
        self._planner.close()

    def _give_up_unplanned(self) -> None:
        """But for what is leased, which stays until the next time."""
        surplus = np.argwhere(self._table.placed.astype(np.bool_) & ~self._planned).tolist()
        leased = [key for key in surplus if self._take(*key) is None]
        self._left_over = bool(leased)

    def _take(self, layer: int, expert: int) -> Copy | None:
        """See `Copies.take`; whoever drops the last reference to its memory unlocks it."""
        copy = self._copies.take(layer, expert)
        if copy is not None:
            self.counters.locked_bytes -= self._locked.pop((layer, expert), 0)
        return copy

    def _coldness(self, key: tuple[int, int]) -> tuple[int, int, int]:
        layer, expert = key
        return (0 if self._rank is None else int(self._rank[layer, expert]), expert, layer)

    def _copy(self, layer: int, experts: list[int]) -> bool:
        """False if there is no memory left: what is planned and not copied is left to the files."""
        try:
            memory = [allocate(bytes_for(self._table.sizes(layer))) for _ in experts]
        except MemoryError as error:
            log.warning("no more experts are copied, the rest stays on the files: %s", error)
            self._planned &= self._table.placed.astype(np.bool_)
            self._planner.close()
            return False
        outcome = self._copies.read(self._reader, layer, experts, memory)
        if len(outcome.failed):
            log.warning("layer %d: %d experts could not be copied and stay on the files", layer, len(outcome.failed))
        self._lock_in(layer, experts, memory)
        self._loading.add(outcome)
        if not (self._planned & (self._table.placed == 0)).any():
            self._loading.end()
        self._count()
        return True

    def _lock_in(self, layer: int, experts: list[int], memories: list[U8]) -> None:
        for expert, memory in zip(experts, memories, strict=True):
            if self._lock is None:
                return
            if (layer, expert) not in self._copies:  # it could not be read
                continue
            result = self._lock(memory)
            self._locked[layer, expert] = result.bytes
            self.counters.locked_bytes += result.bytes
            if result.note:
                log.info("%s; no more is tried", result.note)
                self._lock = None

    def _count(self) -> None:
        self.counters.copied_experts = len(self._copies)
        self.counters.copied_bytes = self._copies.bytes
        self._planner.touched(self.counters.copied_bytes)
