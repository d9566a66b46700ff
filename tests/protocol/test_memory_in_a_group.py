"""What is planned inside a real control group can really be taken there: nobody is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ledger_process
import pytest
from cgroups import ControlGroup, control_group, skip_unless_possible
from page_cache import cached_bytes

MIB = 1 << 20
TAKE = """
import mmap, sys
from protocol.host_memory import host_memory
for _ in range(int(sys.argv[2])):
    with open(sys.argv[1], "rb") as file:
        while file.read(1 << 20):
            pass
found = host_memory()
print(found.available, found.bound_by)
count = found.available - (8 << 20)
memory = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for start in range(0, count, mmap.PAGESIZE):
    memory[start] = 1
"""


@pytest.fixture(autouse=True)
def _groups() -> None:
    skip_unless_possible()


@pytest.mark.parametrize("readings", [1, 3])
def test_pages_of_a_file_count_as_available_and_are(tmp_path: Path, readings: int) -> None:
    """After three readings the kernel has them all on its list of active pages (seen with Linux 6.18)."""
    file = tmp_path / "file"
    with control_group(memory=192 * MIB) as group:
        group.run(["sh", "-c", f"head -c {96 * MIB} /dev/urandom > {file} && sync {file}"], timeout_s=60)
        assert cached_bytes(file) > 90 * MIB  # the kernel may take some back at any moment
        done = group.run([sys.executable, "-P", "-c", TAKE, file, readings], timeout_s=60)
        assert (done.returncode, done.stderr) == (0, "")
        found = done.stdout.split()
        assert 150 * MIB < int(found[0]) < 192 * MIB
        assert found[1] == str(group.memory)
        assert group.oom_kills() == 0
        assert group.peak() >= 0.95 * 192 * MIB
    assert cached_bytes(file) < 96 * MIB


def take(group: ControlGroup, folder: Path, wanted: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", ledger_process.__file__, "take", folder, "/", wanted, 8 * MIB]
    return group.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_four_that_start_at_once_take_what_there_is_and_no_more(tmp_path: Path) -> None:
    """With room for one and a half of them. What they touch becomes part of the others' readings."""
    wanted, limit = 128 * MIB, 256 * MIB  # the interpreters need some 10 MB each
    with control_group(memory=limit) as group:
        children = [take(group, tmp_path, wanted) for _ in range(4)]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        counts = sorted(int(child.stdout.readline()) for child in children if child.stdout is not None)
        assert counts[-1] == wanted
        assert 0.8 * limit < sum(counts) <= limit
        assert group.oom_kills() == 0
        for child in children:
            child.communicate(timeout=30)
            assert child.returncode == 0
    assert os.listdir(tmp_path) == []
