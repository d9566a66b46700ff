"""One ledger of a host's memory, so that processes which start together do not plan with the same bytes.

How much memory is available is one moment's reading: of what a process is going to take, it shows only what has been
touched. So whoever plans holds a lock, reads, subtracts what others have promised and not yet touched, and promises its
own. The lock is held for that moment alone, not for the minutes of loading.

The ledger is a file in memory, one for all processes of a user: they could write into each other's anyway, and a file
that all users may lock would let any of them stop the others. Containers that share its folder share it too.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from protocol.host_memory import HostMemory, host_memory
from protocol.memory_groups import GroupError, memory_groups
from protocol.promises import BYTES_AT_MOST, LedgerError, Promise, available_beside, decode, encode

FOLDERS = (Path("/dev/shm"), Path("/tmp"))
"""The first that is there and can be written; not TMPDIR, which may differ between processes of a host."""
FOREIGN_AFTER_S = 900
"""A promise of a process that cannot be seen from here, as it is in another container, counts for so long after it was
last written."""
_WITHDRAWN_WITHIN_S = 5.0
_POLL_S = 0.002


class Ledger:
    """What a process that holds the lock knows and may do. Used within `planning` alone."""

    def __init__(self, file: _LockedFile, memory: HostMemory, groups: Sequence[Path]) -> None:
        others, self.note = file.read()
        rooms = [(_inode(each.group), each.room) for each in memory.groups]
        self.memory = memory
        """The reading. What is planned is to be checked against this one, not another."""
        self.promised = sum(promise.open for promise in others)
        """Bytes that other processes of this host are going to take."""
        self.available = available_beside(memory, rooms, others)
        """Bytes that may be planned with."""
        self._others = tuple(others)
        self._file = file
        self._groups = tuple(map(_inode, groups))

    def taken_by(self, family: int) -> int:
        """Bytes that others of a family are going to take, or have taken by now."""
        return sum(promise.bytes for promise in self._others if family and promise.family == family)

    def promise(self, count: int, family: int = 0) -> Pledge:
        """Say that this process is going to take so many bytes. LedgerError if the ledger cannot be written."""
        pid = os.getpid()
        promise = Promise(
            key=secrets.randbits(62),
            pid=pid,
            started=_started(pid) or 0,
            space=_space(),
            written=_now(),
            groups=self._groups,
            family=family,
            bytes=count,
            touched=0,
        )
        if count:
            self._file.write((*self._file.read()[0], promise))
        return Pledge(self._file.path, promise)


class Pledge:
    """This process's promise in the ledger, to be withdrawn when all is touched or given up; used by one thread.

    What has been touched shows in every reading of memory, and is promised no more. One of a family stays until its
    bytes are given up, for the others have to know of them. If the process ends without a word, others drop its promise
    when they next look.
    """

    def __init__(self, path: Path, promise: Promise) -> None:
        self._path = path
        self._promise = promise
        self._step = max(16 << 20, promise.bytes >> 6)
        self._is_open = promise.bytes > 0

    def touched(self, count: int) -> None:
        """Of the bytes promised, `count` have been touched by now. Cheap: written after a good part more alone."""
        whole = count >= self._promise.bytes > self._promise.touched
        if self._is_open and (whole or count - self._promise.touched >= self._step):
            now = replace(self._promise, touched=min(count, self._promise.bytes), written=_now())
            if self._update((now,), within_s=0):  # else the next time
                self._promise = now

    def withdraw(self) -> None:
        """Nothing is promised any more. Does nothing the second time."""
        if self._is_open:
            self._is_open = False
            self._update((), within_s=_WITHDRAWN_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.withdraw()

    def _update(self, kept: Sequence[Promise], within_s: float) -> bool:
        """If it fails, others plan with too little for as long as this process lives: no reason to stop it."""
        try:
            with _locked(self._path, within_s) as file:
                file.write([each for each in file.read()[0] if each.key != self._promise.key] + list(kept))
        except LedgerError:
            return False
        return True


@contextmanager
def planning(*, deadline_s: float, folder: Path | None = None, root: Path = Path("/")) -> Iterator[Ledger]:
    """Within the block no other process of this host plans with its memory; to be left soon.

    `folder` has the ledger, by default one that all processes of a host have; memory is read below `root`. LedgerError
    if the lock is not free within `deadline_s` seconds, or the file is somebody else's: then there is no ledger, and a
    caller may go on with a budget that a person has set. A damaged ledger is replaced; its `note` says so.
    """
    with _locked(ledger_path(folder), deadline_s) as file:
        try:
            groups = memory_groups(root)
        except GroupError:  # told by the reading, too
            groups = ()
        yield Ledger(file, host_memory(root), groups)


def ledger_path(folder: Path | None = None) -> Path:
    """Where this user's ledger is; LedgerError if there is no folder for it."""
    for each in (folder,) if folder else FOLDERS:
        if each.is_dir() and os.access(each, os.W_OK):
            return each / f"expertmesh-{os.geteuid()}.ledger"
    raise LedgerError(f"no ledger of memory can be written: {' and '.join(map(str, FOLDERS))} cannot")


class _LockedFile:
    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def read(self) -> tuple[list[Promise], str]:
        """Promises of processes that live, and what there is to say of the file."""
        try:
            found = decode(os.pread(self._descriptor, BYTES_AT_MOST, 0))
        except LedgerError as error:
            return [], f"{self.path} was damaged ({error}) and is begun anew: memory promised there is not known"
        return [promise for promise in found if _is_alive(promise)], ""

    def write(self, promises: Sequence[Promise]) -> None:
        """The line first, then the end of the file: a reader looks at the first line alone."""
        text = encode(promises)
        try:
            os.pwrite(self._descriptor, text, 0)
            os.ftruncate(self._descriptor, len(text))
        except OSError as error:
            raise LedgerError(f"{self.path} cannot be written: {error.strerror}") from None

    def unlink_if_unused(self) -> None:
        """The last to leave removes the file; who has it open already sees that when it has the lock."""
        if not self.read()[0]:
            with suppress(OSError):
                self.path.unlink()


@contextmanager
def _locked(path: Path, deadline_s: float) -> Iterator[_LockedFile]:
    until = time.monotonic() + deadline_s
    while True:
        descriptor = _opened(path)
        try:
            _lock(descriptor, path, until, deadline_s)
            if _is_still_at(descriptor, path):
                file = _LockedFile(path, descriptor)
                try:
                    yield file
                finally:
                    file.unlink_if_unused()
                return
        finally:
            os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise LedgerError(f"the ledger of memory {path} cannot be opened: {error.strerror}{_owner(path)}") from None
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise LedgerError(f"the ledger of memory {path} is no file of this user's (number {os.geteuid()}){_owner(path)}")


def _owner(path: Path) -> str:
    with suppress(OSError):
        return f"; it is of user number {path.lstat().st_uid}"
    return ""


def _lock(descriptor: int, path: Path, until: float, deadline_s: float) -> None:
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise LedgerError(f"another process has held {path} for {deadline_s:g} s: is it stopped?") from None
            time.sleep(_POLL_S)


def _is_still_at(descriptor: int, path: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    return False


def _is_alive(promise: Promise) -> bool:
    now = _now()
    if promise.written > now + 1:  # the machine was started again since
        return False
    if promise.space == _space():
        return _started(promise.pid) == promise.started
    return now - promise.written < FOREIGN_AFTER_S


def _started(pid: int) -> int | None:
    """In clock ticks since the machine was started; None if there is no such process, or only its exit code."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        return int(fields[19]) if fields[0] not in "ZX" else None
    return None


def _space() -> int:
    return _inode(Path("/proc/self/ns/pid"))


def _inode(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_ino
    return 0


def _now() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))
