"""Kernels too old, and containers whose filter refuses: what is there instead does the same."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import blocked_calls
import pytest

pytestmark = pytest.mark.skipif(platform.machine() not in blocked_calls.SYSTEM_CALLS, reason="numbers are not known")

PREPARE = f"""
import errno, mmap, os, sys
sys.path.insert(0, {str(Path(blocked_calls.__file__).parent)!r})
sys.path.insert(1, {str(Path(__file__).parents[2])!r})
import numpy as np
import native
from blocked_calls import block
from protocol.mapped import MappedFile
file = MappedFile.open(sys.argv[1])
start = file.data.ctypes.data
def mapped():
    lines = open("/proc/self/smaps").read().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"{{start:x}}-"))
    return next(int(line.split()[1]) << 10 for line in lines[first:] if line.startswith("Rss:")) // mmap.PAGESIZE
def populate(offset, count):
    native.populate(np.array([start + offset], np.uint64), np.array([count]), 2)
"""

READS = """
before = native.Reader().kind
block("io_uring_setup", errno.EPERM)
reader, into = native.Reader(), np.empty(5000, np.uint8)
result = reader.read(np.array([file.descriptor], np.int32), np.array([3]), [into], False)
print(reader.kind, result.failed.size, bytes(into) == file.read(3, 5000), len(os.listdir("/proc/self/task")) > 8)
"""

RESIDENT = """
block("cachestat")
print(native.resident(np.array([file.descriptor], np.int32), np.array([0]), np.array([1])))
"""

POPULATE = """
block("madvise", errno.EINVAL, 22)
populate(5, 70 * mmap.PAGESIZE)
print(mapped() >= 71)
"""

TRUNCATED = """
block("madvise", errno.EINVAL, 22)
os.truncate(sys.argv[1], 80 * mmap.PAGESIZE)
populate(70 * mmap.PAGESIZE, 20 * mmap.PAGESIZE)
populate(90 * mmap.PAGESIZE, 1)
print("alive", mapped() >= 10)
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (READS, "threads 0 True True"),
        (RESIDENT, "[0]"),
        (POPULATE, "True"),
        (TRUNCATED, "alive True"),
    ],
    ids=["io_uring", "cachestat", "populate", "populate of a truncated file"],
)
def test_what_is_refused_is_done_otherwise(tmp_path: Path, code: str, said: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 1600)
    command = [sys.executable, "-P", "-c", PREPARE + code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == said, done.stderr
