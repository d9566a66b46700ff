"""What other tests rely on: a group limits memory and disk, counts what happened, and is gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cgroups import PREFIX, ControlGroup, NoGroupError, control_group, device_of, skip_unless_possible
from page_cache import cached_bytes, drop_pages

MIB = 1 << 20
TOUCH = "import sys; a = bytearray(int(sys.argv[1])); print(len(a))"
READ = "import sys; print(sum(len(b) for b in iter(lambda f=open(sys.argv[1], 'rb', 0): f.read(1 << 20), b'')))"
PAUSE = "import signal; signal.pause()"
WAIT = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture(autouse=True)
def _groups() -> None:
    skip_unless_possible()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """96 MiB on a disk, not in memory."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(MIB) * 96)
    drop_pages(path)
    if cached_bytes(path):
        pytest.skip(f"pages of {path} stay in memory: it is on no disk")
    return path


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-P", "-c", code, *map(str, arguments)]


def test_who_takes_more_than_the_limit_is_killed_and_counted() -> None:
    with control_group(memory=64 * MIB) as group:
        assert group.run(python(TOUCH, 16 * MIB), timeout_s=60).stdout == f"{16 * MIB}\n"
        assert group.oom_kills() == 0
        assert 16 * MIB < group.peak() <= 64 * MIB
        assert group.run(python(TOUCH, 128 * MIB), timeout_s=60).returncode == -9
        assert group.oom_kills() == 1
        assert group.peak() >= 0.95 * 64 * MIB
        assert group.usage() <= 64 * MIB


def test_pages_of_files_fill_the_limit_and_kill_nobody(file: Path) -> None:
    with control_group(memory=64 * MIB) as group:
        assert group.run(python(READ, file), timeout_s=100).stdout == f"{96 * MIB}\n"
        assert group.oom_kills() == 0
        assert 0.95 * 64 * MIB <= group.peak() <= 64 * MIB
    assert cached_bytes(file) < 96 * MIB


def test_a_limit_can_fall() -> None:
    with control_group(memory=64 * MIB) as group:
        group.set_limit(16 * MIB)
        assert group.run(python(TOUCH, 32 * MIB), timeout_s=60).returncode == -9


def test_a_process_that_runs_can_be_moved_in_and_is_killed_at_the_end() -> None:
    with subprocess.Popen(python(WAIT), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        with control_group(memory=64 * MIB) as group:
            group.move(child.pid)
            assert group.pids() == [child.pid]
        assert child.wait(timeout=30) == -9
        assert not group.memory.exists()


def test_it_is_removed_after_an_error_too() -> None:
    made: list[tuple[ControlGroup, subprocess.Popen[str]]] = []

    def fail() -> None:
        with control_group(memory=64 * MIB) as group:
            made.append((group, group.start(python(PAUSE))))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    ((group, child),) = made
    assert child.wait(timeout=30) == -9
    assert not group.memory.exists()


def test_what_a_killed_test_has_left_is_removed() -> None:
    with control_group() as group:
        left = group.memory.parent / f"{PREFIX}{2**22 + 1}-0"
        left.mkdir()
        with control_group():
            assert not left.exists()


def test_a_command_that_does_not_end_is_killed() -> None:
    with control_group() as group, pytest.raises(subprocess.TimeoutExpired):
        group.run(python(PAUSE), timeout_s=1)


def test_a_slow_disk(file: Path) -> None:
    skip_unless_possible(disk_of=file)
    with control_group(read_bps=64 * MIB, disk_of=file) as group:
        begin = time.monotonic()
        assert group.run(python(READ, file), timeout_s=100).stdout == f"{96 * MIB}\n"
        assert time.monotonic() - begin > 1.0  # 1.5, but for a first burst
    assert group.blkio is None or not group.blkio.exists()


def test_a_file_in_memory_has_no_disk() -> None:
    with pytest.raises(NoGroupError, match=r"/proc/self/stat is on no disk of its own \(device 0:"):
        device_of(Path("/proc/self/stat"))


def test_pages_come_and_go(file: Path) -> None:
    with file.open("rb") as opened:
        opened.read()
    assert cached_bytes(file) > 90 * MIB  # the kernel may take some back at any moment
    drop_pages(file)
    assert cached_bytes(file) == 0


def test_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(pytest.skip.Exception, match="only root can make a control group"):
        skip_unless_possible()
