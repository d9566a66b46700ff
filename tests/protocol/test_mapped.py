"""Mapping a file: what cannot be mapped, what stays valid, and what counts as a change."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from protocol.errors import ModelError
from protocol.mapped import MappedFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(range(200)))
    return path


def test_data_is_the_file_and_read_only(path: Path) -> None:
    with MappedFile.open(path) as file:
        assert file.path == path
        assert file.size == 200
        assert file.data.tobytes() == path.read_bytes()
        with pytest.raises(ValueError, match="read-only"):
            file.data[0] = 1


def test_views_outlive_the_file(path: Path) -> None:
    file = MappedFile.open(path)
    view = file.data[10:13]
    file.close()
    file.close()
    assert view.tolist() == [10, 11, 12]
    with pytest.raises(ValueError, match="closed"):
        _ = file.data
    with pytest.raises(ValueError, match="closed"):
        file.changed()


def test_closing_gives_the_descriptor_back(path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with MappedFile.open(path) as file:
        assert file.data.sum()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_refused_file_leaves_no_descriptor(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ModelError):
        MappedFile.open(tmp_path)
    assert set(os.listdir("/proc/self/fd")) == before


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.gguf' does not exist"):
        MappedFile.open(tmp_path / "absent.gguf")


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a directory, expected a model file"):
        MappedFile.open(tmp_path)


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(ModelError, match=r"empty\.gguf' is empty"):
        MappedFile.open(tmp_path / "empty.gguf")


@pytest.mark.timeout(10)
def test_named_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="not a regular file"):
        MappedFile.open(tmp_path / "pipe")


def test_device() -> None:
    with pytest.raises(ModelError, match="not a regular file"):
        MappedFile.open("/dev/zero")


def test_unreadable_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # a test run as root could read any file
    with pytest.raises(ModelError, match=r"model\.gguf' cannot be opened: Permission denied"):
        MappedFile.open(path)


def test_a_path_that_cannot_be() -> None:
    with pytest.raises(ModelError, match="cannot be opened: embedded null byte"):
        MappedFile.open("a\0b")


def test_nothing_changed(path: Path) -> None:
    with MappedFile.open(path) as file:
        assert file.changed() is None


def test_a_truncated_file_has_changed(path: Path) -> None:
    with MappedFile.open(path) as file:
        os.truncate(path, 100)
        assert file.changed() == "its size was 200 bytes when opened and is 100 now"


def test_a_rewritten_file_has_changed(path: Path) -> None:
    with MappedFile.open(path) as file:
        os.utime(path, ns=(0, 12345))
        assert "modification time" in (file.changed() or "")


def test_a_replaced_file_has_changed(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x")
    with MappedFile.open(path) as file:
        other.rename(path)
        assert file.changed() == "another file took its path: its size was 200 bytes when opened and is 1 now"
        assert file.data.sum() == np.arange(200).sum()


def test_a_removed_file_keeps_its_bytes(path: Path) -> None:
    with MappedFile.open(path) as file:
        path.unlink()
        assert file.changed() is None
        assert file.data[7] == 7


def test_read_copies_and_notices_truncation(path: Path) -> None:
    with MappedFile.open(path) as file:
        assert file.read(5, 3) == bytes([5, 6, 7])
        os.truncate(path, 6)
        with pytest.raises(ModelError, match="1 bytes at offset 5, expected 3: was it truncated"):
            file.read(5, 3)
