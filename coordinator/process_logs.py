"""What the processes of a cluster wrote, kept in a folder: a file for each name, and the one before it."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 8 << 20
"""Of a file; then it becomes the old one, and a new one is begun."""
LAUNCHER = "launcher"
"""The name under which the launcher's own lines are kept."""
SUFFIX = ".log"


def default_folder(listen: str) -> Path:
    """The account's own folder for the cluster that listens there: below XDG_STATE_HOME, or ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = Path(state if state.startswith("/") else os.path.expanduser("~/.local/state"))
    return home / "expertmesh" / "logs" / re.sub(r"[^A-Za-z0-9.]+", "-", listen)


def file_of(folder: Path, name: str) -> Path:
    """Where that process's lines are."""
    return folder / f"{name}{SUFFIX}"


def names_in(folder: Path) -> list[str]:
    """Whose lines are in the folder, the launcher's first; empty if there is none."""
    with suppress(OSError):
        found = sorted(path.name.removesuffix(SUFFIX) for path in folder.iterdir() if path.name.endswith(SUFFIX))
        return sorted(found, key=lambda name: name != LAUNCHER)
    return []


def stamped(line: str, now: float | None = None) -> str:
    """A line as the processes write theirs, with date and time."""
    seconds = time.time() if now is None else now
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))},{int(seconds % 1 * 1000):03d} {line}"


class ProcessLogs:
    """The folder, for writing, by any thread. A context manager.

    No cluster ends because its lines cannot be kept: `failed` says why the last one was not.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        """It is made if it is not there."""
        self.folder = folder
        self.failed = ""
        with suppress(OSError):  # which is told of as soon as there is something to write
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._max_bytes = max_bytes
        self._files: dict[str, BinaryIO] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> ProcessLogs:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
            for file in self._files.values():
                file.close()

    def write(self, name: str, lines: Iterable[str]) -> None:
        """Append lines of the process of that name."""
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
        with self._lock:
            if self._closed or not data:
                return
            try:
                self._file(name).write(data)
            except OSError as error:
                self.failed = f"{error.filename or file_of(self.folder, name)}: {error.strerror}"

    def _file(self, name: str) -> BinaryIO:
        file = self._files.get(name)
        if file is not None and file.tell() >= self._max_bytes:
            file.close()
            path = file_of(self.folder, name)
            path.replace(path.with_name(f"{path.name}.1"))
            del self._files[name]
            file = None
        if file is None:
            file = self._files[name] = file_of(self.folder, name).open("ab", buffering=0)
        return file
