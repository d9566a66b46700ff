"""What the kernel is asked about pages of mapped files, and what it is asked for."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import native
from protocol.mapped import MappedFile

PAGE = mmap.PAGESIZE
PAGES = 4096


@pytest.fixture
def file(tmp_path: Path) -> Iterator[MappedFile]:
    """A file that is on its disk, with a few bytes after its last whole page."""
    path = tmp_path / "file"
    with path.open("wb") as written:
        written.write(bytes(range(256)) * (PAGES * PAGE // 256) + bytes(range(5)))
        os.fsync(written.fileno())
    with MappedFile.open(path) as file:
        yield file


@pytest.fixture
def told(file: MappedFile) -> MappedFile:
    if resident(file, (0, file.size)) != [1]:
        pytest.skip("this kernel, or the file system of the temporary folder, does not tell")
    return file


def resident(file: MappedFile, *parts: tuple[int, int]) -> list[int]:
    descriptors = np.full(len(parts), file.descriptor, np.int32)
    offsets, counts = np.array(parts, np.int64).reshape(-1, 2).T.copy()
    return native.resident(descriptors, offsets, counts).tolist()


def addresses(file: MappedFile, offsets: list[int]) -> np.ndarray:
    return np.array([file.data.ctypes.data + offset for offset in offsets], np.uint64)


def counts(*each: int) -> np.ndarray:
    return np.array(each, np.int64)


def dropped(file: MappedFile) -> None:
    """Nothing of it is in memory any more, nor read ahead."""
    os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if resident(file, (0, PAGE)) != [0]:
        pytest.skip("this file system keeps all pages in memory")


def mapped_bytes(file: MappedFile) -> int:
    """Of the mapping, what this process can reach without a fault."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"{file.data.ctypes.data:x}-"))
    return next(int(line.split()[1]) << 10 for line in lines[first:] if line.startswith("Rss:"))


def test_what_has_just_been_written_is_there_wherever_a_part_begins_and_ends(told: MappedFile) -> None:
    assert resident(told, (0, 1), (1, told.size - 1), (PAGE - 1, 2), (told.size - 1, 1)) == [1, 1, 1, 1]


def test_one_page_does_not_stand_for_others(told: MappedFile) -> None:
    dropped(told)
    os.posix_fadvise(told.descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # so that nothing is read ahead
    told.read(9 * PAGE, 1)
    parts = (9 * PAGE, PAGE), (9 * PAGE - 1, 2), (10 * PAGE - 1, 2), (0, PAGE), (9 * PAGE + 7, 9)
    assert resident(told, *parts) == [1, 0, 0, 0, 1]


def test_of_no_bytes_and_of_a_closed_file_nothing_is_known(file: MappedFile) -> None:
    assert resident(file, (0, 0)) == [0]
    assert native.resident(np.array([-1], np.int32), counts(0), counts(1)).tolist() == [0]
    assert resident(file) == []


def test_all_of_a_part_is_read_in_however_large_the_windows_are(told: MappedFile) -> None:
    dropped(told)
    native.will_need(addresses(told, [5, 4000 * PAGE]), counts(3900 * PAGE, 9 * PAGE))
    deadline = time.monotonic() + 60
    while resident(told, (5, 3900 * PAGE), (4000 * PAGE, 9 * PAGE)) != [1, 1]:
        assert time.monotonic() < deadline
        os.sched_yield()


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_pages_are_mapped_when_they_have_been_populated(file: MappedFile, threads: int) -> None:
    assert mapped_bytes(file) == 0
    offsets = [3 * PAGE + 1, 100 * PAGE, 500 * PAGE, 0]
    us = native.populate(addresses(file, offsets), counts(PAGE, 200 * PAGE, 200 * PAGE, 0), threads)
    assert us >= 0
    assert mapped_bytes(file) >= 402 * PAGE  # the kernel may map their neighbours too
    assert file.data[500 * PAGE + 7] == (500 * PAGE + 7) % 256


def test_a_file_that_was_truncated_gives_no_signal(file: MappedFile) -> None:
    os.truncate(file.path, 10 * PAGE)
    native.populate(addresses(file, [20 * PAGE, 0]), counts(900 * PAGE, 10 * PAGE), 2)
    assert mapped_bytes(file) == 10 * PAGE


def test_what_is_not_mapped_is_left_out() -> None:
    native.populate(np.array([PAGE], np.uint64), counts(PAGE), 1)
    native.will_need(np.array([PAGE], np.uint64), counts(PAGE))
    native.populate(np.empty(0, np.uint64), counts(), 1)


def test_absurd_numbers_are_refused() -> None:
    address = np.array([PAGE], np.uint64)
    for wrong in (-1, 2**63 - 1):
        with pytest.raises(ValueError, match="counts"):
            native.will_need(np.array([2**64 - PAGE], np.uint64), counts(wrong))
    for threads in (0, 257):
        with pytest.raises(ValueError, match="threads"):
            native.populate(address, counts(0), threads)
    with pytest.raises(ValueError, match="counts: 1 expected, found 2"):
        native.populate(address, counts(0, 0), 1)


def test_what_has_arrived_is_all_there(file: MappedFile) -> None:
    dropped(file)
    assert native.arrived(addresses(file, [0]), counts(PAGE)).tolist() == [0]
    native.populate(addresses(file, [3 * PAGE]), counts(100 * PAGE), 2)
    parts = [3 * PAGE, 102 * PAGE + 5, 3 * PAGE + 1]
    assert native.arrived(addresses(file, parts), counts(100 * PAGE, 1, 99 * PAGE)).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="counts: above 0"):
        native.arrived(addresses(file, [0]), counts(0))
