"""The control groups, of version 1 or 2, that bound this process's memory, and what each of them still lets it take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from protocol.errors import ExpertmeshError


class GroupError(ExpertmeshError):
    """What a group says of its memory cannot be read, or not be believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRoom:
    """One group that has a limit."""

    group: Path
    limit: int
    """Bytes."""
    left: int
    """Bytes that its processes may still take together; below zero, bytes that they have too many."""

    @property
    def room(self) -> int:
        """Bytes; never below zero."""
        return max(0, self.left)


def memory_groups(root: Path = Path("/")) -> tuple[Path, ...]:
    """The folders of this process's memory group and of all groups above it, as far as they are mounted below `root`.

    A group whose folder is not there is skipped: those above it, which bind it too, often are. GroupError if the group
    lies outside of what this process is shown.
    """
    if (own := _own_group(root)) is None:
        return ()
    controllers, path = own
    for mount, at in _mounts(root, controllers):
        if ".." in PurePosixPath(path).parts or ".." in PurePosixPath(mount).parts:
            raise GroupError(f"the memory group of this process, {path}, lies outside of what {at} shows ({mount})")
        if PurePosixPath(path).is_relative_to(mount):
            inside = PurePosixPath(path).relative_to(mount)
            return tuple(at / part for part in (inside, *inside.parents) if (at / part).is_dir())
    return ()


def group_room(group: Path) -> GroupRoom | None:
    """What a group's limit leaves; None if it has no limit. GroupError if its files are damaged or not all there."""
    first = (group / "memory.limit_in_bytes").exists()
    if not first and not (group / "memory.max").exists():
        if (group / "cgroup.controllers").exists():
            return None  # version 2: the machine's root, or a group for which nobody accounts memory
        raise GroupError(f"the memory group {group} states no limit")
    names = ("memory.limit_in_bytes",) if first else ("memory.max", "memory.high")  # above "high" all but stops
    limit = min(_limit(group / name) for name in names)
    if limit >= NO_LIMIT:
        return None
    usage = _number(group / ("memory.usage_in_bytes" if first else "memory.current"))
    return GroupRoom(
        group=group, limit=limit, left=left_under(limit, usage, *_file_pages(group / "memory.stat", first))
    )


def left_under(limit: int, usage: int, file_pages: int, dirty: int, writeback: int) -> int:
    """Bytes left under a limit if all clean pages of files were given back; below zero if even that is not enough.

    The kernel counts each of these at another moment, so each is bounded by what it can be.
    """
    reclaimable = max(0, min(file_pages, usage) - dirty - writeback)
    return limit - (usage - reclaimable)


def stat_numbers(text: str, of: Path) -> Mapping[str, int]:
    """The lines of a `memory.stat`, each one name and one number; GroupError if it is anything else."""
    numbers: dict[str, int] = {}
    *lines, rest = text.split("\n")
    if rest:
        raise GroupError(f"{of} ends within the line {rest[:80]!r}")
    for line in lines:
        if (match := _STAT_LINE.fullmatch(line)) is None or match[1] in numbers:
            raise GroupError(f"{of} has the line {line[:80]!r}: expected one name, only once, and one number")
        numbers[match[1]] = int(match[2])
    return numbers


_STAT_LINE = re.compile(r"(\w+) (\d{1,20})", re.ASCII)
NO_LIMIT = 1 << 62
"""Bytes; from here on a number is none: version 1 writes the largest number of whole pages."""


def _own_group(root: Path) -> tuple[bool, str] | None:
    """Whether version 1 governs memory here, and the name of this process's group; None if there are no groups.

    Memory has one version at a time: where a version 1 hierarchy has it, the line of version 2 says nothing of memory.
    """
    second = None
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            return True, path
        if number == "0" and not controllers:
            second = path
    return None if second is None else (False, second)


def _mounts(root: Path, first: bool) -> Iterator[tuple[str, Path]]:
    """Each mount of the hierarchy that governs memory: which of its groups is shown, and where."""
    for line in _lines(root / "proc/self/mountinfo"):
        own, _, of = line.partition(" - ")
        fields, kind = own.split(" "), of.split(" ")
        if len(fields) < 5 or len(kind) < 3 or kind[0] != ("cgroup" if first else "cgroup2"):
            continue
        if not first or "memory" in kind[2].split(","):
            yield fields[3], root / fields[4].lstrip("/")


def _file_pages(stat: Path, first: bool) -> tuple[int, int, int]:
    """Bytes of pages of files, of those that were changed, and of those being written; of all groups below too.

    Active pages count as much as inactive ones: a model in use soon has all its pages on the active list, from which
    the kernel takes them as readily when somebody needs memory (docs/tiers.md has a measurement).
    """
    numbers = stat_numbers(_text(stat), stat)
    names = ("inactive_file", "active_file", "dirty", "writeback") if first else _SECOND
    wanted = [f"total_{name}" if first else name for name in names]
    if missing := [name for name in wanted if name not in numbers]:
        raise GroupError(f"{stat} does not state {', '.join(missing)}")
    inactive, active, dirty, writeback = (numbers[name] for name in wanted)
    return inactive + active, dirty, writeback


_SECOND = ("inactive_file", "active_file", "file_dirty", "file_writeback")


def _limit(path: Path) -> int:
    """Bytes; `NO_LIMIT` where the file says so, or is not there (not every kernel has `memory.high`)."""
    if not path.exists() or _text(path).strip() == "max":
        return NO_LIMIT
    return _number(path)


def _number(path: Path) -> int:
    text = _text(path).strip()
    if not re.fullmatch(r"\d{1,20}", text, re.ASCII):
        raise GroupError(f"{path} says {text[:80]!r}: expected a number of bytes")
    return int(text)


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError as error:
        raise GroupError(f"{path} cannot be read: {error.strerror}") from None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
