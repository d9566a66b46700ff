"""What a machine tells of itself, looked at on this one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from coordinator.host_check import look_around


def of_cache(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = look_around((), (), (folder,))["caches"][str(folder)]
    return found


def test_a_cache_that_is_still_to_be_made_has_the_room_of_its_disk(tmp_path: Path) -> None:
    [room] = of_cache(tmp_path / "none" / "yet").values()
    assert abs(room - shutil.disk_usage(tmp_path).free) < 1 << 30
    assert list(tmp_path.iterdir()) == [], "it was only looked at"


def test_what_is_there_counts_but_no_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))  # type: ignore[attr-defined]
    (tmp_path / "model").mkdir()
    with (tmp_path / "model" / "m.gguf").open("wb") as file:
        file.write(b"x" * (1 << 20))
        file.truncate(1 << 30)
        os.fsync(file.fileno())
    [room] = of_cache(tmp_path).values()
    assert 1 << 20 <= room < 2 << 20


def test_a_cache_below_a_file_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = f"cache {tmp_path}/file/c cannot be used: {tmp_path}/file is no folder that can be written"
    assert of_cache(tmp_path / "file" / "c") == {"error": said}


def test_a_model_tells_what_its_experts_take(demo_model: Path) -> None:
    [model] = look_around((demo_model,), ())["models"].values()
    assert model["experts"] == 16
    assert 0 < model["expert_bytes"] < demo_model.stat().st_size
