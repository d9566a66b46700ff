"""Reading what the processes of a cluster wrote: the last lines of several files in order, and what comes after."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from coordinator.process_logs import file_of, names_in

STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
MOST_READ = 1 << 20
"""Bytes of one file that are read at once."""

Line = tuple[str, str]
"""A process's name and one of its lines."""


class LogReader:
    """The files of some processes, or of all that there are; a context manager."""

    def __init__(self, folder: Path, names: Sequence[str] = ()) -> None:
        self._folder = folder
        self._names = tuple(names)
        self._files: dict[str, _Followed] = {}

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.close()

    def last(self, count: int) -> list[Line]:
        """The last `count` lines of each file, all in the order of their times."""
        return in_order((name, file.last(count)) for name, file in self._found())

    def more(self) -> list[Line]:
        """What has come since the last call, of new files too."""
        return in_order((name, file.more()) for name, file in self._found())

    def _found(self) -> list[tuple[str, _Followed]]:
        for name in self._names or names_in(self._folder):
            if name not in self._files:
                self._files[name] = _Followed(file_of(self._folder, name))
        return list(self._files.items())


def in_order(files: Iterable[tuple[str, Sequence[str]]]) -> list[Line]:
    """Lines of several processes by their times; one without a time stays with the line before it."""
    found: list[tuple[str, Line]] = []
    for name, lines in files:
        stamp = ""
        for line in lines:
            match = STAMP.match(line)
            stamp = match[0] if match else stamp
            found.append((stamp, (name, line)))
    return [line for _, line in sorted(found, key=lambda one: one[0])]


class _Followed:
    """One file, which may be replaced by a new one, or not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def last(self, count: int) -> list[str]:
        if not self._open():
            return []
        assert self._file is not None
        begin = max(0, os.fstat(self._file.fileno()).st_size - MOST_READ)
        self._file.seek(begin)
        lines = self._read()
        return lines[1 if begin else 0 :][-count:] if count else []

    def more(self) -> list[str]:
        lines = self._read() if self._file is not None else []
        if self._replaced():
            self.close()
            self._file = None
        return lines + (self._read() if self._file is None and self._open() else [])

    def _open(self) -> bool:
        if self._file is None:
            try:
                self._file, self._rest = self._path.open("rb", buffering=0), b""
            except FileNotFoundError:
                return False
        return True

    def _replaced(self) -> bool:
        if self._file is None:
            return False
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            return False
        return not os.path.samestat(now, os.fstat(self._file.fileno()))

    def _read(self) -> list[str]:
        """The whole lines from where it is to the end."""
        assert self._file is not None
        data = self._rest + self._file.read(2 * MOST_READ)
        *lines, self._rest = data.split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]
