"""How much memory this process may still take: what the machine has, bounded by the container it runs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Bytes of main memory."""

    total: int
    """Of the machine, or of the tightest limit."""
    available: int
    """What can be taken without swapping; clean pages of files count as available."""
    bound_by: Path | None
    """The control group with the tightest limit; None if that is the machine itself."""


def host_memory(root: Path = Path("/")) -> HostMemory:
    """What /proc and the memory control groups (versions 1 and 2) below `root` say."""
    stated = _numbers(root / "proc/meminfo", ":")
    total, available = stated["MemTotal"] << 10, stated["MemAvailable"] << 10
    found = HostMemory(total=total, available=available, bound_by=None)
    for group in _groups(root):
        limit = _limit(group)
        if limit is None or limit >= total:
            continue
        # A limit binds as soon as less is left of it than of everything above.
        left = max(0, limit - _unreclaimable(group))
        if left < found.available:
            found = HostMemory(total=limit, available=left, bound_by=group)
    return found


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's memory group and of all above it; those that are not mounted here are skipped."""
    mounted = root / "sys/fs/cgroup"
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            top = mounted / "memory" if controllers else mounted
            inside = Path(path.lstrip("/"))
            yield from (top / part for part in (inside, *inside.parents) if (top / part).is_dir())


def _limit(group: Path) -> int | None:
    """Bytes; None if there is no limit."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is no number
            return int((group / name).read_text())
    return None


def _unreclaimable(group: Path) -> int:
    """Bytes in use that are no pages of files."""
    used = 0
    for name in ("memory.current", "memory.usage_in_bytes"):
        with suppress(OSError, ValueError):
            used = int((group / name).read_text())
            break
    stated = _numbers(group / "memory.stat", " ")
    kinds = (
        ("total_inactive_file", "total_active_file")
        if "total_inactive_file" in stated
        else ("inactive_file", "active_file")
    )
    return max(0, used - sum(stated.get(kind, 0) for kind in kinds))


def _numbers(path: Path, separator: str) -> dict[str, int]:
    """The first number of each line, by what stands before it."""
    numbers = {}
    with suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, rest = line.partition(separator)
            with suppress(ValueError, IndexError):
                numbers[name] = int(rest.split()[0])
    return numbers
