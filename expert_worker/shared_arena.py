"""One copy of all experts in shared memory, for all processes of a host that compute from the same model.

The first process that opens an arena loads it, the others wait; if the first one dies, one of those who wait goes on
where it stopped. When it is complete all map it read-only. It goes with its last user.

Why nobody reads bytes that are not there yet: only who has the lock for filling believes the state and the marks. A
unit's mark is written after its bytes, and the kernel passes the lock on after both, when the one who had it gives it
up or is dead. So no fence is needed, on any processor.

All memory of the file is reserved before anything is loaded: if the file system has not enough of it, that is an error
then, and no SIGBUS later. It is charged to the memory control group of the process that reserves it. The kernel kills a
process that reserves more than its group may have, so whoever knows that limit passes `room`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self

from expert_worker.arena_bytes import ArenaBytes
from expert_worker.arena_file import ArenaFile
from expert_worker.arena_header import DamagedArena, Header, Progress, decode, encode, new_header, owner_of
from expert_worker.arena_layout import HEADER_BYTES, MARKS, ArenaLayout
from protocol.errors import ArenaError
from protocol.messages import U8
from protocol.pages import pages_of_files

FOLDER = Path("/dev/shm")
"""Where shared memory has names."""

PATIENCE_S = 120.0
"""How long the process that loads may take for one unit: it may be frozen, and those who wait go on without."""

RESERVE_STEP = 128 << 20
"""Bytes reserved by one `poll`: a tenth of a second."""

_PAUSE_S = 0.01


class Phase(Enum):
    """What a process has to do about its arena."""

    WAITING = "poll: another process loads it, or memory is being reserved"
    OWNER = "load what is missing"
    READY = "use it"


class SharedArena:
    """An open arena. One thread uses it at a time, but `unit_view` and `mark` may be called by several.

    An ArenaError of any method has closed the arena, and the process may go on with a copy of its own::

        with SharedArena.open(layout) as arena:
            while arena.poll() is Phase.WAITING:
                ...  # beat, tell of arena.loaded_bytes, pause unless arena.reserving, look at the time
            if arena.phase is Phase.OWNER:
                for number in arena.missing():
                    ...  # write into arena.unit_view(number), or arena.fail(reason)
                    arena.mark(number)
                arena.finish()
            ...  # arena.data(number)
    """

    def __init__(
        self,
        layout: ArenaLayout,
        file: ArenaFile,
        room: Callable[[], int] | None,
        patience_s: float,
        now: Callable[[], float],
    ) -> None:
        """Use `open`."""
        self.layout = layout
        self.path = file.path
        self.phase = Phase.WAITING
        self._file = file
        self._bytes: ArenaBytes | None = None
        self._marks = bytearray(len(layout.units))
        self._reserved = -1
        """Bytes so far, while this process reserves them; else -1."""
        self._room = room
        self._patience_s = patience_s
        self._now = now
        self._seen: tuple[int, ...] = ()
        self._seen_at = now()

    @classmethod
    def open(
        cls,
        layout: ArenaLayout,
        folder: Path = FOLDER,
        *,
        room: Callable[[], int] | None = None,
        patience_s: float = PATIENCE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Join the users of the arena with this layout in `folder`, or begin it; `phase` says what comes next.

        `room` tells how many bytes of memory this process may take; it is asked if they are not there already, just
        before they are reserved. Does not wait for others. ArenaError if there is not the room, or the file cannot be
        used.
        """
        arena = cls(layout, ArenaFile.open(folder / layout.file_name), room, patience_s, now)
        with arena._closed_on_error():
            arena._advance(opening=True)
        return arena

    @property
    def reserving(self) -> bool:
        """Whether WAITING is for this process itself: `poll` again at once, it takes its time."""
        return self._reserved >= 0

    @property
    def pages(self) -> str:
        """As of `protocol.pages`: the same for all who use this very file, and for nobody else."""
        self._check_open()
        return pages_of_files([self._file.descriptor])

    @property
    def loaded_bytes(self) -> int:
        """Of the units that are there, whoever loaded them: for telling people."""
        self._check_open()
        marks = self._file.read(HEADER_BYTES)[MARKS:]
        return sum(size for (_, size), mark in zip(self.layout.units, marks, strict=False) if mark)

    def poll(self) -> Phase:
        """See what the others have done, and become OWNER if there is nobody else; takes a tenth of a second at most.

        ArenaError if the one who loads has failed or does not get on, or has left what cannot be used.
        """
        self._check_open()
        if self.phase is Phase.WAITING:
            with self._closed_on_error():
                self._advance(opening=False)
        return self.phase

    def wait(self, timeout_s: float) -> Phase:
        """`poll` until it is no more WAITING, or the time is over."""
        until = time.monotonic() + timeout_s
        while self.poll() is Phase.WAITING and time.monotonic() < until:
            if not self.reserving:
                time.sleep(_PAUSE_S)
        return self.phase

    def missing(self) -> list[int]:
        """The units that the owner still has to load, by number."""
        return [number for number, mark in enumerate(self._marks) if not mark]

    def unit_view(self, number: int) -> U8:
        """The bytes of a unit for the owner to write, 1-D and page-aligned; not to be used after `finish`."""
        return self._mapped(Phase.OWNER).unit(number)

    def mark(self, number: int) -> None:
        """The bytes of this unit have been written, and will not be again."""
        self._mapped(Phase.OWNER)
        if not 0 <= number < len(self._marks):
            raise ValueError(f"{self.path} has units 0 to {len(self._marks) - 1}, found {number}")
        with self._closed_on_error():
            self._file.write(b"\1", MARKS + number)
        self._marks[number] = 1

    def finish(self) -> None:
        """All units are marked: let the others have them, and map them as they do.

        ValueError if one is missing.
        """
        self._mapped(Phase.OWNER)
        if missing := self.missing():
            raise ValueError(f"{len(missing)} units are missing, first {self.layout.units[missing[0]][0]!r}")
        with self._closed_on_error():
            if (size := self._file.status().st_size) != self.layout.bytes:
                raise ArenaError(f"{self.path} changed: its size was {self.layout.bytes} bytes and is {size} now")
            self._write_header(Progress.READY)
            self._use()

    def fail(self, reason: str) -> None:
        """It cannot be loaded: tell those who wait, and close. Whoever opens it next tries again."""
        self._mapped(Phase.OWNER)
        with self._closed_on_error():
            self._write_header(Progress.FAILED, reason)
        self.close()

    def data(self, number: int) -> U8:
        """The bytes of a unit, 1-D and read-only; valid for as long as anybody holds them."""
        return self._mapped(Phase.READY).unit(number)

    def problem(self) -> str | None:
        """What became of the bytes since the arena was READY, in a sentence; None while they are what they were.

        To be asked after they were read: what somebody has cut off reads as zeros.
        """
        return self._mapped(Phase.READY).problem()

    def close(self) -> None:
        """Leave the arena, which goes if nobody else uses it; what this process did not load, another one will.

        Nobody may be writing to a unit any more. May be called again.
        """
        if self._bytes is not None:
            self._bytes.close()
            self._bytes = None
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.close()
            raise ArenaError(f"{self.path} cannot be used: {error.strerror or error}") from None
        except BaseException:
            self.close()
            raise

    def _advance(self, opening: bool) -> None:
        if self.reserving:
            self._reserve()
        elif not self._file.lock_filling():
            self._check_patience()
        else:
            try:
                self._take(decode(self._file.read(HEADER_BYTES), self._file.status(), self.layout), opening)
            except DamagedArena as error:
                self._replace(error)

    def _take(self, header: Header | None, opening: bool) -> None:
        """This process has the lock for filling, and finds this header."""
        if header is None:
            self._check_room()
            self._reserved = 0
            self._reserve()
        elif header.progress is Progress.READY:
            self._marks[:] = header.marks
            self._use()
        elif header.progress is Progress.FAILED and not opening:
            raise ArenaError(f"{self.path} was given up by process {header.owner}: {header.reason}")
        else:
            self._own(header.marks)

    def _replace(self, error: DamagedArena) -> None:
        """Nobody can use the file; whoever polls next begins another one."""
        if not self._file.remove_if_alone():
            raise ArenaError(f"{self.path} cannot be used, and not be replaced while others have it: {error}")
        self._file.close()
        self._file = ArenaFile.open(self.path)

    def _check_room(self) -> None:
        self._file.check_room(self.layout.bytes)
        if self._room is not None and (room := self._room()) < self.layout.bytes:
            raise ArenaError(f"{self.path} takes {self.layout.bytes} bytes of memory, but {room} are to be had")

    def _reserve(self) -> None:
        count = min(RESERVE_STEP, self.layout.bytes - self._reserved)
        self._file.reserve(self._reserved, count)
        self._reserved += count
        if self._reserved == self.layout.bytes:
            self._reserved = -1
            self._own(bytes(len(self.layout.units)))

    def _own(self, marks: bytes) -> None:
        self._marks[:] = marks
        self._write_header(Progress.LOADING)
        self._bytes = ArenaBytes(self._file, self.layout, writable=True)
        self.phase = Phase.OWNER

    def _use(self) -> None:
        """It is complete, and stays as it is."""
        self._file.unlock_filling()
        if self._bytes is not None:
            self._bytes.close()
        self._bytes = ArenaBytes(self._file, self.layout, writable=False)
        self.phase = Phase.READY

    def _write_header(self, progress: Progress, reason: str = "") -> None:
        self._file.write(encode(new_header(progress, reason, bytes(self._marks)), self.layout), 0)

    def _check_patience(self) -> None:
        """ArenaError if the one who loads has done nothing for too long."""
        page, status = self._file.read(HEADER_BYTES), self._file.status()
        seen = (status.st_size, status.st_blocks, sum(page[MARKS:]))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._now()
        elif (silent_s := self._now() - self._seen_at) > self._patience_s:
            raise ArenaError(f"{self.path}: process {owner_of(page)} loads it, but has not got on for {silent_s:.0f} s")

    def _mapped(self, phase: Phase) -> ArenaBytes:
        self._check_open()
        if self.phase is not phase or self._bytes is None:
            raise ValueError(f"{self.path} is {self.phase.name}, expected {phase.name}")
        return self._bytes

    def _check_open(self) -> None:
        if self._file.descriptor < 0:
            raise ValueError(f"{self.path} is closed")
