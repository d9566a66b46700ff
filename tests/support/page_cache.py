"""Which of a file's pages are in memory, and getting them out."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np


def drop_pages(path: Path) -> None:
    """The kernel forgets the file's pages, all but those that a process has mapped."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # changed pages are not forgotten
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def cached_bytes(path: Path) -> int:
    """How much of a file is in memory, in bytes of whole pages."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        data = np.frombuffer(mapped, np.uint8)
        there = np.zeros(-(-data.nbytes // mmap.PAGESIZE), np.uint8)
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes), ctypes.c_void_p(there.ctypes.data)
        )
        del data  # an array keeps the mapping open
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
    return int(np.count_nonzero(there & 1)) * mmap.PAGESIZE
