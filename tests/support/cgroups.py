"""Processes with little memory or a slow disk: control groups of either version, for tests and benchmarks run as root.

    with control_group(memory=256 << 20, read_bps=50_000_000, disk_of=model) as group:
        group.run([...], timeout_s=60)
        assert group.oom_kills() == 0

At the end of the block all that runs in the group is killed and the group removed.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ExpertmeshError
from protocol.memory_groups import memory_groups

PREFIX = "expertmesh-test-"
BLKIO = Path("/sys/fs/cgroup/blkio")
REMOVED_WITHIN_S = 20.0
_number = count()


class NoGroupError(Exception):
    """No such group can be made here; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """A group that exists. All sizes are in bytes."""

    memory: Path
    """Its folder, in which its memory is limited."""
    blkio: Path | None
    """With version 1 and a slow disk: the folder of the group that has the disk."""

    @property
    def first(self) -> bool:
        """Whether it is of version 1."""
        return (self.memory / "memory.limit_in_bytes").exists()

    def set_limit(self, size: int) -> None:
        """OSError if what is in use does not fit (version 1); version 2 kills then."""
        (self.memory / ("memory.limit_in_bytes" if self.first else "memory.max")).write_text(str(size))

    def usage(self) -> int:
        """In use now, pages of files among it."""
        return self._size("memory.usage_in_bytes" if self.first else "memory.current")

    def peak(self) -> int:
        """The most that was ever in use."""
        return self._size("memory.max_usage_in_bytes" if self.first else "memory.peak")

    def oom_kills(self) -> int:
        """How many processes the kernel has killed for want of memory."""
        text = (self.memory / ("memory.oom_control" if self.first else "memory.events")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def pids(self) -> list[int]:
        """Of the processes inside."""
        return sorted({int(pid) for folder in self._folders() for pid in _procs(folder).read_text().split()})

    def move(self, pid: int) -> None:
        """The process, and what it starts from now on, is in the group; what it has is counted where it was taken."""
        for folder in self._folders():
            _procs(folder).write_text(str(pid))

    def start(self, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
        """Start a command inside; `options` are those of Popen."""
        inside = "".join(f"echo $$ > {shlex.quote(str(_procs(folder)))} && " for folder in self._folders())
        child = subprocess.Popen(
            ["/bin/sh", "-c", f'{inside}exec "$@"', "sh", *map(str, command)], text=True, **options
        )
        with suppress(ProcessLookupError):  # it may have ended
            self.move(child.pid)  # so that it is inside by now, and killed at the end of the block
        return child

    def run(
        self, command: Sequence[str | Path], timeout_s: float, asked: str = "", **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end, `asked` on its stdin, and give what it printed.

        It is killed when its time is over.
        """
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.start(command, **pipes, **options) as child:
            try:
                out, err = child.communicate(asked, timeout=timeout_s)
            finally:
                child.kill()
        return subprocess.CompletedProcess(command, child.returncode, out, err)

    def _folders(self) -> Iterator[Path]:
        yield self.memory
        if self.blkio is not None:
            yield self.blkio

    def _size(self, name: str) -> int:
        return int((self.memory / name).read_text())


@contextmanager
def control_group(
    *, memory: int | None = None, read_bps: int | None = None, disk_of: Path | None = None
) -> Iterator[ControlGroup]:
    """A new group: at most `memory` bytes, and reads of the disk that has the file `disk_of` at `read_bps` bytes a
    second, direct ones and those through the cache. NoGroupError if that cannot be had here.
    """
    disk = None
    if read_bps is not None:
        if disk_of is None:
            raise ValueError("read_bps needs disk_of")
        disk = f"{device_of(disk_of)} {'rbps=' if not BLKIO.is_dir() else ''}{read_bps}"
    folders: list[Path] = []
    try:
        folders.append(_made(_top(["memory", "io"] if disk else ["memory"])))
        first = (folders[0] / "memory.limit_in_bytes").exists()
        if disk and first:
            folders.append(_made(BLKIO))
        group = ControlGroup(memory=folders[0], blkio=folders[1] if len(folders) > 1 else None)
        _configure(group, memory, disk)
        yield group
    finally:
        for folder in folders:
            _remove(folder)


def skip_unless_possible(*, disk_of: Path | None = None) -> None:
    """Skip the test, and say why, where a group with limited memory (and a slow disk of that file) cannot be made."""
    try:
        with control_group(memory=1 << 26, read_bps=None if disk_of is None else 1 << 20, disk_of=disk_of):
            pass
    except NoGroupError as error:
        pytest.skip(str(error))


def device_of(path: Path) -> str:
    """Numbers of the whole disk that has a file; NoGroupError if it is on none, as in memory or on several."""
    number = path.stat().st_dev
    at = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not at.exists():
        raise NoGroupError(f"{path} is on no disk of its own (device {os.major(number)}:{os.minor(number)})")
    whole = at.resolve().parent if (at / "partition").exists() else at
    return (whole / "dev").read_text().strip()


def _configure(group: ControlGroup, memory: int | None, disk: str | None) -> None:
    try:
        for name, text in (("memory.swappiness", "0"), ("memory.swap.max", "0")):
            if (group.memory / name).exists():
                (group.memory / name).write_text(text)
        if memory is not None:
            group.set_limit(memory)
        if disk is not None:
            at = group.memory / "io.max" if group.blkio is None else group.blkio / "blkio.throttle.read_bps_device"
            at.write_text(disk)
    except OSError as error:
        raise NoGroupError(f"a control group cannot be limited: {error}") from None


def _top(controllers: Sequence[str]) -> Path:
    """The outermost group that is shown here, ready for groups inside it that have these controllers."""
    if os.geteuid() != 0:
        raise NoGroupError("only root can make a control group")
    try:
        groups = memory_groups()
    except ExpertmeshError as error:
        raise NoGroupError(str(error)) from None
    if not groups:
        raise NoGroupError("no memory control groups are mounted here")
    top = groups[-1]
    if (top / "cgroup.subtree_control").exists():
        try:
            (top / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in controllers))
        except OSError as error:
            raise NoGroupError(
                f"{top} gives the groups in it no {' and '.join(controllers)}: {error.strerror}"
            ) from None
    return top


def _made(parent: Path) -> Path:
    """A new group; those that a killed test has left are removed."""
    for old in parent.glob(f"{PREFIX}*"):
        if not Path(f"/proc/{old.name.removeprefix(PREFIX).partition('-')[0]}").exists():
            _remove(old)
    made = parent / f"{PREFIX}{os.getpid()}-{next(_number)}"
    try:
        made.mkdir()
    except OSError as error:
        raise NoGroupError(f"no control group can be made in {parent}: {error.strerror}") from None
    return made


def _remove(folder: Path) -> None:
    """Kill what runs in the group and remove it; this process itself is only moved out."""
    until = time.monotonic() + REMOVED_WITHIN_S
    while True:
        with suppress(OSError):
            for pid in map(int, _procs(folder).read_text().split()):
                if pid == os.getpid():
                    _procs(folder.parent).write_text(str(pid))
                else:
                    os.kill(pid, signal.SIGKILL)
        try:
            return folder.rmdir()
        except FileNotFoundError:
            return None
        except OSError as error:
            if time.monotonic() >= until:
                raise AssertionError(f"{folder} is not gone after {REMOVED_WITHIN_S:g} s: {error}") from None
            time.sleep(0.005)


def _procs(folder: Path) -> Path:
    return folder / "cgroup.procs"
