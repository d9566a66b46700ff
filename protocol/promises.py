"""What processes of one host have promised to take of its memory and have not touched yet, and its form in a file.

Values alone: `host_ledger.py` has the file and its lock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from protocol.errors import ExpertmeshError
from protocol.host_memory import HostMemory

FORM = "expertmesh ledger 2"
BYTES_AT_MOST = 1 << 16
"""Of the file. A promise takes some 200."""
PROMISES_AT_MOST = 256
_NUMBER_AT_MOST = 1 << 62


class LedgerError(ExpertmeshError):
    """The ledger of the host's memory cannot be used; who plans without it may plan with bytes of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Bytes of memory that one process is going to take, or takes at this moment."""

    key: int
    """Random: tells the promises of one process apart."""
    pid: int
    started: int
    """When the process was started, in clock ticks since the machine was: a number may be given again."""
    space: int
    """The space of process numbers that `pid` is of, which differs between containers."""
    written: int
    """When this was last written, in seconds since the machine was started."""
    groups: tuple[int, ...]
    """Inodes of the memory groups around the process: these bytes will be counted there."""
    family: int
    """Processes that share memory out evenly have the same number here; 0 for who has none of them."""
    bytes: int
    touched: int
    """How many of them the kernel counts as taken already."""

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            if not _is_number(getattr(self, name)):
                raise LedgerError(f"{name} is {getattr(self, name)!r}: expected a number from 0 to 2^62")
        if not all(map(_is_number, self.groups)):
            raise LedgerError(f"groups are {self.groups!r}: expected inodes")

    @property
    def open(self) -> int:
        """Bytes that no reading of memory shows yet."""
        return max(0, self.bytes - self.touched)


def available_beside(memory: HostMemory, rooms: Sequence[tuple[int, int]], promises: Iterable[Promise]) -> int:
    """Bytes that may be planned with: what `memory` has, less what others have promised where it would be counted.

    `rooms` has the inode and the room in bytes of each group with a limit.
    """
    if memory.unknown:
        return 0
    promises = tuple(promises)
    left = memory.machine_available - sum(promise.open for promise in promises)
    for group, room in rooms:
        left = min(left, room - sum(promise.open for promise in promises if group in promise.groups))
    return max(0, left)


def encode(promises: Iterable[Promise]) -> bytes:
    """One line; LedgerError if there are more promises than a file may have."""
    kept = tuple(promises)
    text = json.dumps({"form": FORM, "promises": [asdict(promise) for promise in kept]}).encode() + b"\n"
    if len(kept) > PROMISES_AT_MOST or len(text) > BYTES_AT_MOST:
        raise LedgerError(f"{len(kept)} processes promise memory at once: expected {PROMISES_AT_MOST} at most")
    return text


def decode(text: bytes) -> tuple[Promise, ...]:
    """What `encode` wrote, and whatever stands behind its line; no promises if it is empty. LedgerError if damaged."""
    if not text:
        return ()
    line, ends, _ = text.partition(b"\n")
    if not ends or len(line) >= BYTES_AT_MOST:
        raise LedgerError(f"it has no line of {BYTES_AT_MOST} bytes at most")
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise LedgerError("its first line is no JSON") from None
    if not isinstance(found, dict) or found.get("form") != FORM or not isinstance(found.get("promises"), list):
        raise LedgerError(f"it is no {FORM!r}")
    if len(found["promises"]) > PROMISES_AT_MOST:
        raise LedgerError(f"it has {len(found['promises'])} promises: expected {PROMISES_AT_MOST} at most")
    return tuple(map(_promise, found["promises"]))


def _promise(found: object) -> Promise:
    if not isinstance(found, dict) or set(found) != _NAMES or not isinstance(found["groups"], list):
        raise LedgerError("a promise has not the fields " + ", ".join(sorted(_NAMES)))
    return Promise(**{**found, "groups": tuple(found["groups"])})


_NAMES = {field.name for field in fields(Promise)}
_NUMBERS = sorted(_NAMES - {"groups"})


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _NUMBER_AT_MOST
