"""What memory is left, with and without control groups of both versions, from files as a kernel writes them."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from protocol.host_memory import HostMemory, host_memory

GIB = 1 << 30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of 64 GiB with 48 available."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable: {48 << 20} kB\n")
    return tmp_path


def group(folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{content}\n")
    return folder


def test_a_machine_without_groups(root: Path) -> None:
    assert host_memory(root) == HostMemory(total=64 * GIB, available=48 * GIB, bound_by=None)


def test_a_group_without_a_limit(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("0::/box\n")
    group(root / "sys/fs/cgroup/box", memory_max="max", memory_current=GIB)
    assert host_memory(root).bound_by is None


def test_clean_file_pages_count_as_available(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("0::/box\n")
    stat = f"anon {2 * GIB}\ninactive_file {3 * GIB}\nactive_file {GIB}"
    box = group(root / "sys/fs/cgroup/box", memory_max=8 * GIB, memory_current=6 * GIB, memory_stat=stat)
    assert host_memory(root) == HostMemory(total=8 * GIB, available=6 * GIB, bound_by=box)


def test_the_tightest_of_all_groups_above_binds(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("0::/slice/box\n")
    top = root / "sys/fs/cgroup"
    group(top / "slice/box", memory_max=10 * GIB, memory_current=GIB, memory_stat="inactive_file 0")
    tight = group(top / "slice", memory_max=12 * GIB, memory_current=9 * GIB, memory_stat="inactive_file 0")
    assert host_memory(root) == HostMemory(total=12 * GIB, available=3 * GIB, bound_by=tight)


def test_version_1(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("5:cpu:/\n4:memory:/a\n0::/\n")
    stat = f"total_inactive_file {GIB}\ntotal_active_file 0\ninactive_file 0\nactive_file 0"
    box = group(root / "sys/fs/cgroup/memory/a", memory_stat=stat)
    (box / "memory.limit_in_bytes").write_text(f"{4 * GIB}\n")
    (box / "memory.usage_in_bytes").write_text(f"{2 * GIB}\n")
    group(root / "sys/fs/cgroup/memory").joinpath("memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert host_memory(root) == HostMemory(total=4 * GIB, available=3 * GIB, bound_by=box)


def test_a_group_that_is_not_mounted_here_binds_through_the_one_above(root: Path) -> None:
    """As in a container that sees its own group as the top."""
    (root / "proc/self/cgroup").write_text("0::/outside/name\n")
    top = group(root / "sys/fs/cgroup", memory_max=2 * GIB, memory_current=0, memory_stat="inactive_file 0")
    assert host_memory(root) == HostMemory(total=2 * GIB, available=2 * GIB, bound_by=top)


def test_more_in_use_than_the_limit_leaves_nothing(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("0::/box\n")
    group(root / "sys/fs/cgroup/box", memory_max=GIB, memory_current=2 * GIB, memory_stat="inactive_file 0")
    assert host_memory(root).available == 0


def test_this_machine() -> None:
    found = host_memory()
    assert 0 < found.available <= found.total <= psutil.virtual_memory().total
