"""What a worker tells the kernel of pages: to keep those of copies, to forget those of files that were copied.

Nothing here changes what is computed, so nothing here fails: what the kernel refuses is a note for a person. None of
the calls holds the GIL.
"""

from __future__ import annotations

import ctypes
import os
import resource
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.wording import size

Bytes = NDArray[np.uint8]
_libc: Any = ctypes.CDLL(None, use_errno=True)
for _call in (_libc.mlock, _libc.munlock):
    _call.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockResult:
    """What has come of a wish to lock."""

    bytes: int
    """Locked: all, or 0."""
    note: str
    """Why it was refused; empty if it was not."""


def lock(data: Bytes) -> LockResult:
    """Have all pages of `data` (1-D, contiguous) kept in memory until `unlock`, or until its memory is unmapped.

    Pages that are not there yet are taken now. All or nothing. Locks are not counted, and are of whole pages: `data`
    should begin and end where pages do, else a neighbour's lock ends with its own.
    """
    if not data.nbytes or not _libc.mlock(data.ctypes.data, data.nbytes):
        return LockResult(bytes=data.nbytes, note="")
    reason = os.strerror(ctypes.get_errno())
    unlock(data)  # of a lock that failed half-way the kernel keeps the first half
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY:
        reason = f"{reason}; this process may lock {size(limit)} (ulimit -l, LimitMEMLOCK=)"
    return LockResult(bytes=0, note=f"{size(data.nbytes)} are not locked in memory: {reason}")


def unlock(data: Bytes) -> None:
    """The kernel may have the pages of `data` again when it needs memory. Does nothing to what is not locked."""
    _libc.munlock(data.ctypes.data, data.nbytes)


def forget(descriptor: int, offset: int, count: int) -> str:
    """Have a file's pages dropped that were read for a copy, else the same bytes are in memory twice.

    Pages that a process has mapped, or that are to be written, stay; those of another worker that has yet to read them
    do not: once a host, after its last worker has its copy, is often enough. Gives a note if the kernel refuses.
    """
    try:
        os.posix_fadvise(descriptor, offset, count, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        return f"pages of a file that was copied stay in memory: {error.strerror}"
    return ""
