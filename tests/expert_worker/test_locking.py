"""Pages are kept, given back and forgotten as was asked, and a refusal is a note."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from page_cache import cached_bytes, drop_pages

from expert_worker.locking import LockResult, forget, lock, unlock

MIB = 1 << 20
PAGE = mmap.PAGESIZE
Bytes = NDArray[np.uint8]


def private(size: int) -> Bytes:
    return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def kib(key: str, file: str = "status") -> int:
    found = re.search(rf"^{key}:\s+(\d+) kB$", Path(f"/proc/self/{file}").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """4 MiB in memory."""
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(1).bytes(4 * MIB))
    drop_pages(path)
    if cached_bytes(path):
        pytest.skip(f"pages of {path} stay in memory: it is on no disk")
    path.read_bytes()
    return path


def test_locked_pages_are_counted_until_they_are_unlocked() -> None:
    data, before = private(MIB), kib("VmLck")
    assert lock(data) == LockResult(bytes=MIB, note="")
    assert kib("VmLck") == before + 1024
    unlock(data)
    assert kib("VmLck") == before
    unlock(data)


def test_nothing_to_lock() -> None:
    assert lock(np.empty(0, np.uint8)) == LockResult(bytes=0, note="")


REFUSED = """
import ctypes, os, re, resource, sys
import numpy as np
from expert_worker.locking import lock
resource.setrlimit(resource.RLIMIT_MEMLOCK, (int(sys.argv[1]), int(sys.argv[1])))
done = lock(np.ones(3 << 19, np.uint8))
print(done.bytes)
print(done.note)
print(re.search(r"VmLck:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def without_the_right_to_lock() -> None:
    """For a child: root is bound by no limit unless this right is taken from what it can have."""
    ctypes.CDLL(None).prctl(24, 14, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_IPC_LOCK


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (MIB, "Cannot allocate memory; this process may lock 1 MiB (ulimit -l, LimitMEMLOCK=)"),
        (0, "Operation not permitted; this process may lock 0 bytes (ulimit -l, LimitMEMLOCK=)"),
    ],
)
def test_a_refusal_names_the_limit_and_locks_nothing(limit: int, reason: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", REFUSED, str(limit)],
        preexec_fn=without_the_right_to_lock,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"0\n1.5 MiB are not locked in memory: {reason}\n0\n"


def test_only_the_pages_of_the_range_are_forgotten(file: Path) -> None:
    with file.open("rb") as opened:
        assert forget(opened.fileno(), MIB, 2 * MIB) == ""
    assert MIB < cached_bytes(file) <= 2 * MIB  # the kernel may take some back at any moment


def test_a_file_that_cannot_be_told_is_a_note() -> None:
    reading, writing = os.pipe()
    try:
        assert forget(reading, 0, PAGE) == "pages of a file that was copied stay in memory: Illegal seek"
    finally:
        os.close(reading)
        os.close(writing)
