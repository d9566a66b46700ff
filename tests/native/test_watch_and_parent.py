"""A mapped file that shrinks while kernels read it is noticed, and is never a crash or a silent zero."""

from __future__ import annotations

import mmap
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import native

PAGE = mmap.PAGESIZE


def mapped(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def watch_of(data: np.ndarray) -> native.Watch:
    """A watch of these bytes, of no file: only for faults."""
    return native.Watch(data, -1, b"", 0)


def touch(data: np.ndarray, columns: int) -> None:
    """Let a kernel read it all, one F32 row a page."""
    rows = data.size // (4 * columns)
    out = np.empty((1, rows), np.float32)
    weights = native.Weights(data, 0, 1, rows, columns)
    native.matmul(native.Pool(2), weights, 0, native.Rows(np.ones((1, columns), np.float32)), out)


def test_a_shrunk_file_is_remembered_by_offset(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(8 * PAGE))
    data = mapped(path)
    watch = watch_of(data)
    touch(data, PAGE // 4)
    assert watch.fault() == -1
    os.truncate(path, 3 * PAGE)
    touch(data, PAGE // 4)
    assert 3 * PAGE <= watch.fault() < 8 * PAGE
    assert watch.fault() // PAGE >= 3
    watch.close()
    assert watch.fault() // PAGE >= 3  # what was seen stays known


def test_every_watch_of_the_place_is_told(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(4 * PAGE))
    data = mapped(path)
    watches = [watch_of(data), watch_of(data[PAGE:]), watch_of(data[: PAGE // 2])]
    os.truncate(path, 2 * PAGE)
    touch(data, PAGE // 4)
    assert watches[0].fault() // PAGE >= 2
    assert watches[1].fault() == watches[0].fault() - PAGE
    assert watches[2].fault() == -1


def test_watches_are_reused_after_they_close(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(PAGE))
    for _ in range(600):  # more than there are slots
        watch_of(mapped(path)).close()


def test_a_file_is_intact_while_it_and_its_path_are_as_they_were(tmp_path: Path) -> None:
    path, other = tmp_path / "weights", tmp_path / "other"
    path.write_bytes(bytes(PAGE))
    data, modified_ns = mapped(path), path.stat().st_mtime_ns
    with path.open("rb") as file:
        watch = native.Watch(data, file.fileno(), os.fsencode(path), modified_ns)
        assert watch.intact()
        os.utime(path, ns=(modified_ns, modified_ns + 1))
        assert not watch.intact()
        os.utime(path, ns=(modified_ns, modified_ns))
        assert watch.intact()
        path.unlink()
        assert watch.intact()  # the mapping keeps its bytes
        other.write_bytes(bytes(PAGE + 1))
        other.rename(path)
        assert not watch.intact()
        path.unlink()
        path.symlink_to(path)
        assert not watch.intact()  # nobody can tell what is there
        path.unlink()
        watch.close()
    assert not watch.intact()


UNWATCHED = """
import mmap, os, sys
import numpy as np
import native
with open(sys.argv[1], "r+b") as file:
    view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    native.Watch(np.zeros(10, np.uint8), -1, b"", 0)
    os.truncate(sys.argv[1], 0)
    view[0]
"""


@pytest.mark.timeout(60)
def test_a_fault_elsewhere_still_ends_the_process(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(bytes(PAGE))
    done = subprocess.run([sys.executable, "-c", UNWATCHED, str(path)], timeout=30, check=False)
    assert done.returncode == -signal.SIGBUS


ORPHAN = """
import os, signal
import native
parent = os.getpid()
if os.fork():
    signal.pause()
if native.die_with_parent(parent):
    print(os.getpid(), flush=True)
    signal.pause()
"""


@pytest.mark.timeout(60)
def test_a_child_dies_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    ended = os.pidfd_open(child)
    parent.kill()
    parent.wait(timeout=10)
    assert select.select([ended], [], [], 10)[0], "the child outlived its parent by 10 s"
    os.close(ended)
    parent.stdout.close()


def test_the_wrong_parent_is_noticed() -> None:
    code = "import native, sys; sys.exit(0 if not native.die_with_parent(1) else 1)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0
