"""One file mapped read-only: opened safely, read without copies, watched for changes."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ModelError


class MappedFile:
    """A regular file's bytes as one array.

    Views of `data` stay valid for as long as anybody holds them, after `close` too. Others may shrink or rewrite the
    file meanwhile: `changed` tells.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        """Takes over `descriptor`, open for reading. Use `open`."""
        self.path = path.absolute()
        self.filling = False
        """Whether parts of it are written while it is open, by us: then its time of modification tells nothing."""
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        self.size, self.modified_ns = status.st_size, status.st_mtime_ns
        self._map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        self._data: NDArray[np.uint8] | None = np.frombuffer(self._map, dtype=np.uint8)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Map the whole file. ModelError if it is missing, unreadable, empty or not a regular file."""
        try:
            # Not blocking: opening a named pipe would otherwise wait for its writer.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise ModelError(f"model file {os.fspath(path)!r} does not exist") from None
        except (OSError, ValueError) as error:
            raise ModelError(f"model file {os.fspath(path)!r} cannot be opened: {_reason(error)}") from None
        try:
            _check_regular(path, os.fstat(descriptor))
            return cls(Path(path), descriptor)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, (OSError, ValueError)):
                raise ModelError(f"model file {os.fspath(path)!r} cannot be mapped: {_reason(error)}") from None
            raise

    @property
    def data(self) -> NDArray[np.uint8]:
        """All bytes, a read-only 1-D view. ValueError once closed."""
        if self._data is None:
            raise ValueError(f"{self.path} is closed")
        return self._data

    @property
    def descriptor(self) -> int:
        """Open for reading until `close`, -1 then."""
        return self._descriptor

    def read(self, offset: int, count: int) -> bytes:
        """Copy `count` bytes by reading, not through the mapping: a file that shrank is a ModelError, not a fault."""
        try:
            found = os.pread(self._descriptor, count, offset)
        except OSError as error:
            raise ModelError(f"{self.path}: cannot be read at offset {offset}: {_reason(error)}") from None
        if len(found) != count:
            raise ModelError(f"{self.path}: {len(found)} bytes at offset {offset}, expected {count}: was it truncated?")
        return found

    def holes(self) -> Iterator[tuple[int, int]]:
        """Start and end of each part that was never written and reads as zeros, where the file system tells."""
        seek, descriptor, size, position = os.lseek, self._descriptor, self.size, 0
        try:  # a share of a model has ten thousand holes
            while (start := seek(descriptor, position, os.SEEK_HOLE)) < size:
                try:
                    position = seek(descriptor, start, os.SEEK_DATA)
                except OSError:  # there is nothing but a hole up to the end
                    position = size
                yield start, position
        except OSError:  # it does not tell, or the end was reached
            return

    def changed(self) -> str | None:
        """What differs from the moment of opening, in words, or None.

        Looks at the mapped file and at whatever has its path now. A path that names nothing any more is no change:
        the mapping keeps the bytes of a removed file.
        """
        if self._descriptor < 0:
            raise ValueError(f"{self.path} is closed")
        try:
            if text := self._difference(os.fstat(self._descriptor)):
                return text
            if text := self._difference(os.stat(self.path)):
                return f"another file took its path: {text}"
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"its size and time cannot be read any more: {_reason(error)}"
        return None

    def in_words(self, change: str) -> str:
        """A sentence for whoever used the file meanwhile: `change` is what `changed` tells, or a page that is gone."""
        return f"model file {self.path} changed while in use: {change}"

    def _difference(self, now: os.stat_result) -> str | None:
        if now.st_size != self.size:
            return f"its size was {self.size} bytes when opened and is {now.st_size} now"
        if now.st_mtime_ns != self.modified_ns and not self.filling:
            return f"its modification time was {self.modified_ns} ns when opened and is {now.st_mtime_ns} ns now"
        return None

    def close(self) -> None:
        """Give up the file; the mapping goes with the last view of it. May be called again."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        self._data = None
        with contextlib.suppress(BufferError):  # views are still held; the mapping is freed with the last of them
            self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _check_regular(path: str | os.PathLike[str], status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ModelError(f"{os.fspath(path)!r} is a directory, expected a model file")
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{os.fspath(path)!r} is not a regular file, expected a model file")
    if status.st_size == 0:
        raise ModelError(f"model file {os.fspath(path)!r} is empty")


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
