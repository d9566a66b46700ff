"""What the kernel is asked about pages, and what it is asked for."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from expert_worker.warming import in_cache, will_need
from protocol.mapped import MappedFile

PAGES = 64


@pytest.fixture
def file(tmp_path: Path) -> Iterator[MappedFile]:
    """A file that is on its disk, with a few bytes after its last whole page."""
    path = tmp_path / "file"
    with path.open("wb") as written:
        written.write(np.arange(PAGES * mmap.PAGESIZE + 5, dtype=np.uint32).astype(np.uint8).tobytes())
        os.fsync(written.fileno())
    with MappedFile.open(path) as file:
        if not in_cache(file.descriptor, 0, file.size):
            pytest.skip("this kernel, or the file system of the temporary folder, does not tell")
        yield file


def test_what_has_just_been_written_is_there_wherever_a_part_begins_and_ends(file: MappedFile) -> None:
    for offset, count in ((0, 1), (1, file.size - 1), (mmap.PAGESIZE - 1, 2), (file.size - 1, 1)):
        assert in_cache(file.descriptor, offset, count)


def test_one_page_does_not_stand_for_others(file: MappedFile) -> None:
    page = mmap.PAGESIZE
    os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # so that nothing is read ahead
    file.read(9 * page, 1)
    if in_cache(file.descriptor, 0, file.size):
        pytest.skip("this file system keeps all pages in memory")
    assert in_cache(file.descriptor, 9 * page, page)
    assert not in_cache(file.descriptor, 9 * page - 1, 2)
    assert not in_cache(file.descriptor, 10 * page - 1, 2)
    assert not in_cache(file.descriptor, 0, page)


def test_of_a_closed_file_nothing_is_known() -> None:
    assert not in_cache(-1, 0, 1)


def test_pages_can_be_asked_for_from_any_byte_on(file: MappedFile) -> None:
    assert will_need(file.data[5 : 3 * mmap.PAGESIZE])
