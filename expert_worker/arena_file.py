"""The file of a shared arena: who uses it, who fills it, and that it goes with its last user.

Two locks, both of the file itself, so that there is no second file to be left behind:

- Everybody who uses the file has a shared flock on it. Whoever gets it exclusively is alone, and may remove the name.
  A file that nobody has locked was left by processes that were killed: `sweep` removes it.
- Whoever fills the file has the write lock of its first byte, by open file description (F_OFD_SETLK). A plain fcntl
  lock would be lost as soon as any descriptor of the file is closed in this process, as `sweep` does.

The kernel gives up both as soon as the process is gone, however it ended. They belong to the open file: a child that
was forked and runs no other program would keep them, so processes that have an arena start others by exec only
(descriptors close on it), as all of ours do.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from expert_worker.arena_header import BLOCK_BYTES
from expert_worker.arena_layout import FILE_NAME
from protocol.errors import ArenaError

OPEN_WITHIN_S = 2.0
"""Others lock the file exclusively for moments only, while they remove it."""

_TRY_AGAIN_AFTER_S = 0.002

_FLOCK = struct.Struct("hhqqi0q")
"""C's struct flock: type, whence, start, length, pid (0 for locks of open files)."""


class ArenaFile:
    """An arena's file, open for reading and writing, with its place in the folder kept from being removed."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Takes over `descriptor`. Use `open`."""
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the file, or make an empty one.

        ArenaError if that cannot be, and if it is another user's: bytes of others are not computed from.
        """
        until = time.monotonic() + OPEN_WITHIN_S
        while True:
            file = cls(path, _opened(path, os.O_RDWR | os.O_CREAT))
            try:
                file._check_ours()
                if file._lock_use(fcntl.LOCK_SH) and file._is_named():
                    return file
            except BaseException:
                os.close(file.descriptor)
                raise
            os.close(file.descriptor)  # somebody has just removed it, or is about to
            if time.monotonic() > until:
                raise ArenaError(f"{path} has been locked by another process for {OPEN_WITHIN_S:.0f} s")
            time.sleep(_TRY_AGAIN_AFTER_S)

    def lock_filling(self) -> bool:
        """Become the one who fills the file; False if another process is."""
        return self._lock_first_byte(fcntl.F_WRLCK)

    def unlock_filling(self) -> None:
        """What was written before this is seen by whoever gets the lock after it."""
        self._lock_first_byte(fcntl.F_UNLCK)

    def remove_if_alone(self) -> bool:
        """Whether nobody else uses the file; then its name is removed. If not, it may be removed from now on."""
        if not self._lock_use(fcntl.LOCK_EX):
            return False
        if self._is_named():  # and stays so: others remove it only under the lock that we have
            self.path.unlink()
        return True

    def check_room(self, count: int) -> None:
        """ArenaError at once unless a file of `count` bytes has room, as far as the file system tells."""
        state = os.fstatvfs(self.descriptor)
        free = state.f_bavail * state.f_frsize + self.status().st_blocks * BLOCK_BYTES
        if state.f_blocks and free < count:  # without a limit it states nothing
            raise ArenaError(
                f"{self.path} takes {count} bytes, but {free} are free in {self.path.parent}; containers have little "
                "shared memory unless told otherwise (--shm-size)"
            )

    def reserve(self, start: int, count: int) -> None:
        """Take the memory of these bytes now, so that it cannot be missing when they are written. OSError if it is."""
        os.posix_fallocate(self.descriptor, start, count)

    def status(self) -> os.stat_result:
        """Of the open file, whatever its name leads to."""
        return os.fstat(self.descriptor)

    def read(self, count: int) -> bytes:
        """The first bytes, as far as there are any."""
        return os.pread(self.descriptor, count, 0)

    def write(self, data: bytes, offset: int) -> None:
        """All of it."""
        if (count := os.pwrite(self.descriptor, data, offset)) != len(data):
            raise ArenaError(f"{self.path}: {count} of {len(data)} bytes could be written")

    def close(self) -> None:
        """Remove the file if this was its last user. May be called again."""
        if self.descriptor < 0:
            return
        with suppress(OSError):  # the folder may be gone
            self.unlock_filling()  # not left to closing: a mapping has a descriptor too
            self.remove_if_alone()
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)
        self.descriptor = -1

    def _check_ours(self) -> None:
        status = self.status()
        if not stat.S_ISREG(status.st_mode):
            raise ArenaError(f"{self.path} is not a regular file")
        if status.st_uid != os.geteuid():
            raise ArenaError(f"{self.path} belongs to user {status.st_uid}, expected {os.geteuid()}")
        if status.st_mode & 0o022:
            raise ArenaError(f"{self.path} can be written by others, its mode is {status.st_mode & 0o777:o}")

    def _lock_use(self, kind: int) -> bool:
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_named(self) -> bool:
        """Whether the path leads to this very file."""
        try:
            return os.path.samestat(self.status(), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _lock_first_byte(self, kind: int) -> bool:
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True


def sweep(folder: Path) -> list[Path]:
    """Remove the arenas of this user in `folder` that nobody uses; what cannot be removed stays.

    Safe at any time: whoever opens one meanwhile notices, and makes another.
    """
    removed = []
    with suppress(OSError):
        for name in sorted(os.listdir(folder)):
            if FILE_NAME.fullmatch(name) and _removed(folder / name):
                removed.append(folder / name)
    return removed


def _removed(path: Path) -> bool:
    try:
        file = ArenaFile(path, _opened(path, os.O_RDWR))
    except ArenaError:
        return False
    try:
        file._check_ours()
        return file.remove_if_alone()
    except (ArenaError, OSError):
        return False
    finally:
        os.close(file.descriptor)


def _opened(path: Path, flags: int) -> int:
    try:
        # Not blocking: a named pipe would otherwise be waited for.
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except FileNotFoundError:
        raise ArenaError(f"{path} cannot be made: there is no such folder") from None
    except OSError as error:
        raise ArenaError(f"{path} cannot be opened: {error.strerror}") from None
