"""Reads experts' bytes into memory: past the page cache where that has not got them, or copied from it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import native
from expert_worker.expert_table import ExpertTable, Ranges
from expert_worker.locking import forget
from protocol.messages import I32, I64, U8

log = logging.getLogger(__name__)

DEPTH = 64
"""Requests in flight at once."""


class Outcome(NamedTuple):
    """Of one batch of reads."""

    failed: I32
    """Indices of experts that could not be read."""
    bytes: int
    us: int
    fallbacks: int
    """Experts whose direct read failed, and that were read through the page cache."""


class FileReader:
    """Reads of one thread, many at once. Another thread has a reader of its own."""

    def __init__(self, table: ExpertTable, *, own_pages: bool = True) -> None:
        """`own_pages`: every array that is read into begins as far into a page as its bytes in their file do, and has
        these pages to itself; then a disk can write to them."""
        self._table = table
        self._own_pages = own_pages
        self._reader = native.Reader(depth=DEPTH)
        self._direct = _direct_descriptors(table)

    def read(self, layer: int, experts: NDArray[np.integer[Any]], into: Sequence[Sequence[U8]]) -> Outcome:
        """Read gate, up and down of each expert (n,) into its three arrays."""
        return self._read_all(self._table.ranges(layer, experts), [part for parts in into for part in parts], 3)

    def read_role(self, layer: int, role: int, experts: NDArray[np.integer[Any]], into: Sequence[U8]) -> Outcome:
        """Read one matrix, by its place among gate, up and down, of each expert (n,)."""
        ranges = self._table.ranges(layer, experts)
        return self._read_all(ranges.some(np.arange(len(ranges.length)) % 3 == role), into, 1)

    def _read_all(self, ranges: Ranges, arrays: Sequence[U8], each: int) -> Outcome:
        """`each` ranges belong to an expert."""
        began = time.perf_counter()
        left = np.arange(len(arrays), dtype=np.intp)
        fallbacks = 0
        absent = native.resident(ranges.descriptor, ranges.offset, ranges.length) == 0
        if self._direct:  # what memory has is copied from there: a warm restart needs no disk
            past_cache = np.flatnonzero(absent & np.isin(ranges.descriptor, list(self._direct)))
            descriptors = np.array([self._direct.get(one, one) for one in ranges.descriptor.tolist()], np.int32)
            lost = self._read(descriptors, ranges.offset, arrays, past_cache, direct=True)
            fallbacks = len(np.unique(lost // each))
            left = np.concatenate([lost, np.setdiff1d(left, past_cache)])
        lost = self._read(ranges.descriptor, ranges.offset, arrays, left, direct=False)
        for index in left[absent[left]].tolist():  # pages that are here for this read alone
            forget(int(ranges.descriptor[index]), int(ranges.offset[index]), int(ranges.length[index]))
        us = int((time.perf_counter() - began) * 1e6)
        return Outcome(np.unique(lost // each).astype(np.int32), int(ranges.length.sum()), us, fallbacks)

    def close(self) -> None:
        """Give up the descriptors; may be called again."""
        self._reader.close()
        for descriptor in self._direct.values():
            os.close(descriptor)
        self._direct = {}

    def _read(
        self, descriptors: I32, offsets: I64, arrays: Sequence[U8], chosen: NDArray[np.intp], *, direct: bool
    ) -> NDArray[np.intp]:
        """Indices of those chosen that could not be read wholly, not even alone."""
        if not len(chosen):
            return chosen

        def attempt(some: NDArray[np.intp]) -> NDArray[np.intp]:
            into = [arrays[index] for index in some.tolist()]
            whole_pages = direct and self._own_pages
            failed: I32 = self._reader.read(descriptors[some], offsets[some], into, direct, whole_pages).failed
            return some[failed]

        lost = attempt(chosen)
        # One that fails has the reader give up those that it had not begun.
        return np.array([index for index in lost.tolist() if len(attempt(np.array([index])))], np.intp)


def _direct_descriptors(table: ExpertTable) -> dict[int, int]:
    """By the descriptor of each file one that reads past the page cache; without those that cannot be had."""
    opened = {}
    for name, file in table.files.items():
        try:  # by its descriptor, since the path may have another file by now
            opened[file.descriptor] = os.open(
                f"/proc/self/fd/{file.descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT
            )
        except OSError as error:
            log.info("%s is read through the page cache: %s", name, error.strerror)
    return opened
