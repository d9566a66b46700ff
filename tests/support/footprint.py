"""What a process has: memory, files and threads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import psutil


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a process has of its own."""

    anonymous: int
    """Bytes that no file has, as `Memory` has it."""
    files: int
    threads: int


def has_no_more(pid: int, before: Use) -> bool:
    """Whether it has no more files and threads now. What ended a moment ago may be closed a moment later."""
    now = use_of(pid)
    return now.files <= before.files and now.threads <= before.threads


def use_of(pid: int) -> Use:
    """Of a process that runs, now."""
    seen = psutil.Process(pid)
    return Use(anonymous=memory_of(pid).anonymous, files=seen.num_fds(), threads=seen.num_threads())
