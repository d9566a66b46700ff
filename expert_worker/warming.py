"""Advice to the kernel about pages of mapped files."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

_madvise: Any = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def will_need(data: NDArray[np.uint8]) -> bool:
    """Ask for the pages of `data` (1-D, part of a file's mapping) to be read in; False if the kernel will not.

    Returns when the reads are queued, at the latest. Does not hold the GIL, which `mmap.madvise` would.
    """
    start = data.ctypes.data
    lead = start % mmap.PAGESIZE
    return bool(_madvise(start - lead, data.nbytes + lead, mmap.MADV_WILLNEED) == 0)
