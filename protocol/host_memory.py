"""How much memory this process may still take: what the machine has, bounded by the container it runs in.

It is one moment's reading, no reservation: `host_ledger.py` keeps processes from planning with the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.memory_groups import GroupError, GroupRoom, group_room, memory_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Bytes of main memory."""

    total: int
    """Of the machine, or of the tightest limit."""
    available: int
    """What can be taken without swapping; clean pages of files count as available. 0 if it is not known."""
    bound_by: Path | None
    """The control group with the tightest limit; None if that is the machine itself."""
    unknown: str = ""
    """Why it is not known how much is available; empty if it is."""
    machine_total: int = 0
    """What the machine has in all."""
    machine_available: int = 0
    """What of it is available, whatever limits there are."""
    groups: tuple[GroupRoom, ...] = ()
    """All groups around this process that have a limit, the innermost first."""


def host_memory(root: Path = Path("/"), around: Sequence[Path] | None = None) -> HostMemory:
    """What /proc and the memory control groups (versions 1 and 2) below `root` say. Never fails: see `unknown`.

    `around` has the groups, if they are known already (`memory_groups`): who asks often saves half of the time.
    """
    total, available = meminfo(root)
    if total is None or available is None:
        reason = f"{root / 'proc/meminfo'} does not state MemTotal and MemAvailable"
        return HostMemory(total=total or 0, available=0, bound_by=None, unknown=reason)
    try:
        found = [group_room(group) for group in (memory_groups(root) if around is None else around)]
    except GroupError as error:  # a limit that is not known may be any: nothing is safe to take
        return HostMemory(
            total=total,
            available=0,
            bound_by=None,
            unknown=str(error),
            machine_total=total,
            machine_available=available,
        )
    # A limit binds as soon as less is left of it than of everything else.
    groups = tuple(room for room in found if room is not None and room.limit < total)
    tightest = min(groups, key=lambda each: each.room, default=None)
    binds = tightest if tightest is not None and tightest.room < available else None
    return HostMemory(
        total=binds.limit if binds else total,
        available=binds.room if binds else available,
        bound_by=binds.group if binds else None,
        machine_total=total,
        machine_available=available,
        groups=groups,
    )


def meminfo(root: Path = Path("/")) -> tuple[int | None, int | None]:
    """The machine's memory in all, and what of it is available, in bytes; None for what it does not state."""
    try:
        text = (root / "proc/meminfo").read_text("ascii", "replace")
    except OSError:
        return None, None
    kib = dict(_MEMINFO.findall(text))
    total, available = kib.get("MemTotal"), kib.get("MemAvailable")
    return int(total) << 10 if total else None, int(available) << 10 if available else None


_MEMINFO = re.compile(r"^(MemTotal|MemAvailable): +(\d{1,16}) kB$", re.MULTILINE | re.ASCII)
