"""Who is told to share pages: the same files of one machine, whatever their names, and nobody else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from protocol import pages
from protocol.model import Model


def pages_at(path: Path) -> str:
    with Model.open(path) as model:
        found = pages.pages_of(model)
        assert pages.pages_of_files(reversed([file.file.descriptor for file in model.files.files])) == found
    return found


def test_a_file_has_the_same_pages_under_all_its_names_and_a_copy_has_others(demo_model: Path, tmp_path: Path) -> None:
    link, hard, copy = tmp_path / "link.gguf", tmp_path / "hard.gguf", tmp_path / "copy.gguf"
    shutil.copyfile(demo_model, copy)
    link.symlink_to(copy)
    os.link(copy, hard)
    found = pages_at(copy)
    assert len(found) == 16
    assert int(found, 16) >= 0
    assert pages_at(link) == pages_at(hard) == found
    assert pages_at(demo_model) != found


def test_another_machine_has_other_pages(demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = pages_at(demo_model)
    other = tmp_path / "boot_id"
    other.write_text("another machine\n")
    monkeypatch.setattr(pages, "BOOT_ID", other)
    assert pages_at(demo_model) not in (here, "")
    monkeypatch.setattr(pages, "BOOT_ID", tmp_path / "nowhere")
    assert pages_at(demo_model) == ""
