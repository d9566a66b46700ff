"""How much memory a process has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """In bytes, as the kernel counts pages."""

    resident: int
    """All that is in memory, the model file's pages among it."""
    proportional: int
    """The same, but of a page that several processes have in memory each counts its part (Pss)."""
    anonymous: int
    """Of no file: what the process itself has allocated."""


def memory_of(pid: int) -> Memory:
    """What a process that runs has now."""
    kib = dict(re.findall(r"^(\w+): +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
    return Memory(**{name: 1024 * int(kib[key]) for name, key in _KEYS.items()})


_KEYS = {"resident": "Rss", "proportional": "Pss", "anonymous": "Anonymous"}
