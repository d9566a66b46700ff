"""Advice to the kernel about pages of mapped files, and whether it has them."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

_madvise: Any = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_CACHESTAT = 451
"""Its number on every architecture; Linux 6.5 is the first to have it."""
_syscall: Any = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_Range: Any = ctypes.c_uint64 * 2  # offset, length
_Counts: Any = ctypes.c_uint64 * 5  # pages cached, dirty, being written, evicted, recently evicted


def in_cache(descriptor: int, offset: int, count: int) -> bool:
    """Whether memory has all pages of these bytes of an open file. False where the kernel cannot tell.

    Costs a quarter of asking for pages that are there already. Does not hold the GIL.
    """
    lead = offset % mmap.PAGESIZE
    pages = -(-(lead + count) // mmap.PAGESIZE)
    counts = _Counts()
    failed = _syscall(_CACHESTAT, descriptor, ctypes.byref(_Range(offset, count)), ctypes.byref(counts), 0)
    return not failed and int(counts[0]) >= pages


def will_need(data: NDArray[np.uint8]) -> bool:
    """Ask for the pages of `data` (1-D, part of a file's mapping) to be read in; False if the kernel will not.

    Returns when the reads are queued, at the latest. Does not hold the GIL, which `mmap.madvise` would.
    """
    start = data.ctypes.data
    lead = start % mmap.PAGESIZE
    return bool(_madvise(start - lead, data.nbytes + lead, mmap.MADV_WILLNEED) == 0)
