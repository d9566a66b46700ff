"""The first page of a shared arena's file: what is in the file, how far it has come, and who is at it."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from expert_worker.arena_layout import HEADER_BYTES, MARKS, VERSION, ArenaLayout
from protocol.errors import ExpertmeshError
from protocol.pages import boot_id

MAGIC = b"XMARENA\0"
"""How every header begins; a file whose first page is nothing but zeros has never had one."""

_FIELDS = struct.Struct("<8s II QI IIQ 40s 32s 16s H")
"""Magic; version, bytes of the header; bytes of the file, units; state, owner's pid and start; boot id, fingerprint,
digest; bytes of the reason, which follows. Little-endian."""

BLOCK_BYTES = 512
"""The unit of st_blocks, everywhere."""

_MAX_REASON = MARKS - _FIELDS.size


class DamagedArena(ExpertmeshError):
    """A file is not the arena that its name says."""


class Progress(IntEnum):
    """How far an arena has come."""

    LOADING = 1
    READY = 2
    FAILED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What changes in it; the rest is the layout."""

    progress: Progress
    owner: int
    """The process that loads or loaded it, by the number that it has for itself: to be told, not to be relied on."""
    owner_start: int
    """When that started, in clock ticks since the machine did; 0 if unknown."""
    reason: str
    """Why it failed."""
    marks: bytes
    """1 for each unit that is complete, else 0."""


def new_header(progress: Progress, reason: str, marks: bytes) -> Header:
    """With this process as the owner."""
    return Header(progress=progress, owner=os.getpid(), owner_start=_start_of_this(), reason=reason, marks=marks)


def encode(header: Header, layout: ArenaLayout) -> bytes:
    """The whole page; a reason that is too long is cut."""
    reason = header.reason.encode()[:_MAX_REASON]
    fields = _FIELDS.pack(
        MAGIC,
        VERSION,
        HEADER_BYTES,
        layout.bytes,
        len(layout.units),
        header.progress,
        header.owner,
        header.owner_start,
        boot_id().encode(),
        layout.fingerprint.encode(),
        layout.digest.encode(),
        len(reason),
    )
    return ((fields + reason).ljust(MARKS, b"\0") + header.marks).ljust(HEADER_BYTES, b"\0")


def decode(page: bytes, status: os.stat_result, layout: ArenaLayout) -> Header | None:
    """The header of a file with this first page and this status; None if it has none yet, and may get one.

    DamagedArena, with what was found and what expected, if the file is no arena of this layout and of this life of the
    machine. `page` may be anything.
    """
    if not page.rstrip(b"\0") and status.st_size <= layout.bytes:
        return None
    _compare("its size", status.st_size, layout.bytes)
    if (reserved := status.st_blocks * BLOCK_BYTES) < layout.bytes:
        raise DamagedArena(f"{reserved} bytes are reserved for it, expected {layout.bytes}")
    _compare("the size of its first page", len(page), HEADER_BYTES)
    _compare("its magic", page[: len(MAGIC)], MAGIC)
    found = _FIELDS.unpack_from(page)
    _, version, header_bytes, count, units, progress, owner, start, boot, fingerprint, digest, length = found
    _compare("its version", version, VERSION)
    _compare("its header's size", header_bytes, HEADER_BYTES)
    _compare("its stated size", count, layout.bytes)
    _compare("its number of units", units, len(layout.units))
    _compare("its machine's boot", _text(boot), boot_id())
    _compare("its model's fingerprint", _text(fingerprint), layout.fingerprint)
    _compare("its layout's digest", _text(digest), layout.digest)
    marks = page[MARKS : MARKS + units]
    if max(marks) > 1:
        raise DamagedArena(f"a unit's mark is {max(marks)}, expected 0 or 1")
    if progress not in set(Progress):
        raise DamagedArena(
            f"its state is {progress}, expected one of {', '.join(str(each.value) for each in Progress)}"
        )
    if progress == Progress.READY and not all(marks):
        raise DamagedArena(f"it is ready with {sum(marks)} of {units} units")
    reason = page[_FIELDS.size :][: min(length, _MAX_REASON)].decode(errors="replace")
    return Header(progress=Progress(progress), owner=owner, owner_start=start, reason=reason, marks=marks)


def owner_of(page: bytes) -> int:
    """The process that a header names, whatever else it says; 0 if none."""
    owner: int = _FIELDS.unpack_from(page.ljust(_FIELDS.size, b"\0"))[6]
    return owner


def _compare(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise DamagedArena(f"{what} is {found!r}, expected {expected!r}")


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode(errors="replace")


def _start_of_this() -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
    return 0
