"""A folder with the files of /proc and /sys/fs/cgroup that say how much memory there is, as a kernel writes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
_KINDS = ("inactive_file", "active_file", "dirty", "writeback")


@dataclass(frozen=True, slots=True)
class FakeMachine:
    """At first of 64 GiB with 48 available, and without control groups."""

    root: Path

    def __post_init__(self) -> None:
        (self.root / "proc/self").mkdir(parents=True)
        self.memory(64 * GIB, 48 * GIB)

    def memory(self, total: int, available: int) -> None:
        """What the machine has, in bytes."""
        text = f"MemTotal: {total >> 10:>15} kB\nMemFree: 1 kB\nMemAvailable: {available >> 10:>10} kB\n"
        (self.root / "proc/meminfo").write_text(text)

    def second(self, own: str = "/box", shown: str = "/") -> Path:
        """Version 2 alone, with this process in the group `own`; gives the folder that shows the group `shown`."""
        self._process(f"0::{own}", f"30 20 0:26 {shown} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw")
        top = self.root / "sys/fs/cgroup"
        top.mkdir(parents=True, exist_ok=True)
        (top / "cgroup.controllers").write_text("cpu memory io\n")
        return top

    def first(self, own: str = "/box", shown: str = "/") -> Path:
        """Both versions, with memory in version 1."""
        self._process(
            f"5:cpu,cpuacct:/elsewhere\n4:memory:{own}\n1:name=systemd:/\n0::/other",
            "31 20 0:27 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs rw\n"
            "32 31 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
            f"33 31 0:29 {shown} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "34 31 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
        )
        return first_group(self.root / "sys/fs/cgroup/memory", 9223372036854771712)

    def _process(self, groups: str, mounts: str) -> None:
        (self.root / "proc/self/cgroup").write_text(f"{groups}\n")
        (self.root / "proc/self/mountinfo").write_text(f"22 1 254:0 / / rw shared:1 - ext4 /dev/root rw\n{mounts}\n")


def second_group(folder: Path, limit: object, usage: object = 0, **stat: int) -> Path:
    """A group of version 2. `stat` has `inactive_file`, `active_file`, `dirty` and `writeback`: 0 if left out."""
    lines = ["anon 0", "file 0"]
    lines += [f"{'' if kind.endswith('file') else 'file_'}{kind} {stat.get(kind, 0)}" for kind in _KINDS]
    files = {"memory.max": limit, "memory.high": "max", "memory.current": usage, "memory.stat": "\n".join(lines)}
    return _group(folder, files)


def first_group(folder: Path, limit: object, usage: object = 0, **stat: int) -> Path:
    """The same of version 1. The group's own numbers are nonsense: those with the groups below it count."""
    lines = [f"{kind} {GIB << 8}" for kind in _KINDS]
    lines += [f"total_{kind} {stat.get(kind, 0)}" for kind in _KINDS]
    files = {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": usage, "memory.stat": "\n".join(lines)}
    return _group(folder, files)


def _group(folder: Path, files: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")
    return folder
