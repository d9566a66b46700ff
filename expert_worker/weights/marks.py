"""Which pieces of a model are in a folder, told by a file beside them; and who of several processes fetches which."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from struct import Struct

import numpy as np

from protocol.messages import U8

_LOCK = Struct("@hhqqi4x")  # struct flock: type, whence, start, length, pid
_WRITE, _NONE = fcntl.F_WRLCK, fcntl.F_UNLCK


class Marks:
    """A byte for each piece, 1 once it is on the disk. A process that fetches a piece has a lock on its byte.

    The kernel gives up the locks of a process that ends, however it ends.
    """

    def __init__(self, path: Path, count: int) -> None:
        """Open them, or make them, for `count` pieces. OSError if that cannot be."""
        self._count = count
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        if os.fstat(self._file).st_size != count:  # new, or cut short: what is not marked is fetched again
            os.ftruncate(self._file, count)

    def read(self, span: slice | None = None) -> U8:
        """(pieces,): 1 for those that are there; of a span of them, or of all."""
        start, stop = (0, self._count) if span is None else (span.start, span.stop)
        found = np.zeros(stop - start, np.uint8)
        data = np.frombuffer(os.pread(self._file, stop - start, start), np.uint8)
        found[: len(data)] = data == 1
        return found

    def has(self, number: int) -> bool:
        """Whether one is there."""
        return os.pread(self._file, 1, number) == b"\1"

    def set(self, numbers: Iterable[int]) -> None:
        """These are on the disk. OSError if that cannot be written."""
        for number in numbers:
            os.pwrite(self._file, b"\1", number)

    def clear(self, numbers: Iterable[int]) -> None:
        """These are not there after all."""
        for number in numbers:
            os.pwrite(self._file, b"\0", number)

    def claim(self, number: int) -> bool:
        """Whether this process is to fetch it; False while another one does."""
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _lock(_WRITE, number))
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True

    def give_up(self, number: int) -> None:
        """This process does not fetch it any more."""
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _lock(_NONE, number))

    def close(self) -> None:
        """Claims go with it. May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _lock(kind: int, number: int) -> bytes:
    return _LOCK.pack(kind, os.SEEK_SET, number, 1, 0)
