"""What the kernel is asked about pages, and what it is asked for."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command_line import wait_until

import native
from expert_worker.bank import ExpertBank
from expert_worker.warming import in_cache, will_need
from protocol.holder.refusals import layer_of
from protocol.mapped import MappedFile
from protocol.model import Model

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


def test_a_hint_makes_an_experts_pages_come_before_it_is_asked_for(tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / tiny_model.name
    shutil.copy(tiny_model, path)
    with path.open("rb+") as written:
        os.fsync(written.fileno())
    with Model.open(path) as model, ExpertBank(model, native.Pool(1)) as bank:
        descriptor = model.files.files[0].file.descriptor
        last = len(model.layout.layers) - 1
        roles = [(role.offset + 2 * role.expert_bytes, role.expert_bytes) for role in layer_of(bank.layout, last).roles]
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # but for what the header's reading has mapped
        if all(in_cache(descriptor, *role) for role in roles):
            pytest.skip("this kernel does not tell, or the file system keeps all pages in memory")
        bank.warm(last, np.array([2], np.int32))
        assert wait_until(lambda: all(in_cache(descriptor, *role) for role in roles), within_s=20.0)


def test_of_a_closed_file_nothing_is_known() -> None:
    assert not in_cache(-1, 0, 1)


def test_pages_can_be_asked_for_from_any_byte_on(file: MappedFile) -> None:
    assert will_need(file.data[5 : 3 * mmap.PAGESIZE])
