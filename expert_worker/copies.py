"""Experts' bytes in memory of this process."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from expert_worker.expert_table import ExpertTable
from expert_worker.file_reader import FileReader, Outcome
from protocol.messages import U8

PAGE = mmap.PAGESIZE
Key = tuple[int, int]
"""Layer, expert."""


class Copy(NamedTuple):
    """One expert, or memory for one."""

    memory: U8
    """All of it, whole pages."""
    parts: tuple[U8, U8, U8]
    """Gate, up, down."""


class Copies:
    """Copies that are placed, each an allocation of its own: so any of them can be given back to the system alone.

    Two threads may use it, if not for the same expert.
    """

    def __init__(self, table: ExpertTable) -> None:
        self._table = table
        self._copies: dict[Key, Copy] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._copies

    def __len__(self) -> int:
        return len(self._copies)

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._copies))

    @property
    def bytes(self) -> int:
        """That all copies take."""
        return sum(copy.memory.nbytes for copy in tuple(self._copies.values()))

    def read(self, reader: FileReader, layer: int, experts: Sequence[int], memory: Sequence[U8]) -> Outcome:
        """Fill the memory, `bytes_for` one expert each, and place those that could be read.

        ChangedExpertError, and none is placed, if the files are not what they were.
        """
        ids = np.array(experts, np.int64)
        offsets = self._table.ranges(layer, ids).offset.reshape(-1, 3).tolist()
        sizes = self._table.sizes(layer)
        room = [Copy(piece, _parts(piece, sizes, at)) for piece, at in zip(memory, offsets, strict=True)]
        outcome = reader.read(layer, ids, [copy.parts for copy in room])
        self._table.check(layer, ids)
        bad = set(outcome.failed.tolist())
        for index, (expert, copy) in enumerate(zip(experts, room, strict=True)):
            if index not in bad:
                self.put(layer, expert, copy)
        return outcome

    def put(self, layer: int, expert: int, copy: Copy) -> None:
        """Place a copy that has the expert's bytes."""
        self._copies[layer, expert] = copy
        self._table.place(layer, expert, copy.parts)

    def take(self, layer: int, expert: int) -> Copy | None:
        """Give up a copy, whose memory may be used for another then; None while it is leased."""
        if (layer, expert) not in self._copies or not self._table.displace(layer, expert):
            return None
        return self._copies.pop((layer, expert))


def bytes_for(sizes: Sequence[int]) -> int:
    """That a copy takes whose matrices have these sizes in bytes: whole pages, wherever in a page each begins."""
    return sum(map(_span, sizes))


def allocate(count: int) -> U8:
    """Memory of so many bytes, which goes back to the system when nobody holds it any more; malloc would keep it.

    Of large pages where the system has them: a disk writes to these, and kernels read them, faster.

    MemoryError if there is none.
    """
    try:
        memory = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(error.strerror) from None
    with suppress(OSError):  # a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def _span(size: int) -> int:
    return (size + 2 * PAGE - 2) // PAGE * PAGE


def _parts(memory: U8, sizes: Sequence[int], offsets: Sequence[int]) -> tuple[U8, U8, U8]:
    """Where matrices at these offsets of their files go: as far into a page as there, so that a disk writes to them."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + _span(size))
    leads = [start + offset % PAGE for start, offset in zip(starts, offsets, strict=False)]
    gate, up, down = (memory[lead : lead + size] for lead, size in zip(leads, sizes, strict=True))
    return gate, up, down
