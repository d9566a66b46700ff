"""How short memory is at this moment: room under every limit, and time that processes spend waiting for memory."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from expert_worker.pressure import Reading
from protocol.host_memory import HostMemory, host_memory
from protocol.memory_groups import GroupError, memory_groups

_GROUPS_STAY_FOR = 16
"""Readings after which this process's group is looked up again: it may be moved."""


class PressureWatch:
    """Reads below `root`, whatever is there: what is missing or damaged is not known. Costs less than a millisecond."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._groups: Sequence[Path] | None = None
        self._used = 0
        self.memory: HostMemory | None = None
        """Of the last reading; `unknown` says why room is not known."""

    def read(self) -> Reading:
        """One reading, of now."""
        if self._groups is None or self._used >= _GROUPS_STAY_FOR:
            self._used = 0
            self._groups = self._found()
        self._used += 1
        memory = self.memory = host_memory(self._root, self._groups)
        if memory.unknown:
            self._groups = None
        some, full = self._waited()
        return Reading(
            at_s=time.monotonic(),
            limit=None if memory.unknown else min([memory.machine_total, *(each.limit for each in memory.groups)]),
            room=None if memory.unknown else min([memory.machine_available, *(each.left for each in memory.groups)]),
            some_us=some,
            full_us=full,
        )

    def _found(self) -> Sequence[Path] | None:
        try:
            return memory_groups(self._root)
        except GroupError:  # the reading says so, too
            return None

    def _waited(self) -> tuple[int | None, int | None]:
        """Of this process's own group where the kernel counts that (version 2), else of the whole machine."""
        own = [group / "memory.pressure" for group in (self._groups or ())[:1]]
        for path in (*own, self._root / "proc/pressure/memory"):
            try:
                found = dict(_TOTALS.findall(path.read_text("ascii", "replace")))
            except OSError:  # also where it is switched off
                continue
            if found:
                some, full = (int(found[kind]) if kind in found else None for kind in ("some", "full"))
                return some, full
        return None, None


_TOTALS = re.compile(r"^(some|full) .*\btotal=(\d{1,19})$", re.MULTILINE | re.ASCII)
