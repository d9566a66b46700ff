"""The short name of a model's bytes: the same everywhere, another for other bytes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gguf_bytes import moe_bytes

from protocol.errors import ModelError
from protocol.fingerprint import SAMPLE_BYTES, fingerprint
from protocol.geometry import Geometry
from protocol.layout import ExpertLayout
from protocol.quant_types import TensorType
from protocol.shards import ModelFiles

CONTENT = moe_bytes()
MIDDLE = (len(CONTENT) - SAMPLE_BYTES) // 2


def fingerprint_of(path: Path) -> str:
    with ModelFiles.open(path) as gguf:
        return fingerprint(gguf, ExpertLayout.of(gguf, Geometry.of(gguf)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    return path


def test_golden_values(path: Path, demo_model: Path) -> None:
    """Hosts of different versions compare these: whoever must change them changes DOMAIN too."""
    assert fingerprint_of(path) == "53660f8b99342c22"
    assert fingerprint_of(demo_model) == "4a14ac5350ef5e53"


def test_the_folder_does_not_matter_and_the_name_does(path: Path, tmp_path: Path) -> None:
    before = fingerprint_of(path)
    (tmp_path / "elsewhere").mkdir()
    moved = path.rename(tmp_path / "elsewhere" / path.name)
    assert fingerprint_of(moved) == before
    assert fingerprint_of(moved.rename(tmp_path / "other.gguf")) != before


@pytest.mark.parametrize("offset", [-1, -SAMPLE_BYTES, MIDDLE, MIDDLE + SAMPLE_BYTES - 1])
def test_a_byte_in_a_sample_matters(path: Path, offset: int) -> None:
    before = fingerprint_of(path)
    flip(path, offset % len(CONTENT))
    assert fingerprint_of(path) != before


@pytest.mark.parametrize("offset", [-SAMPLE_BYTES - 1, MIDDLE - 1, MIDDLE + SAMPLE_BYTES])
def test_a_byte_outside_of_the_samples_does_not(path: Path, offset: int) -> None:
    """The documented limit."""
    before = fingerprint_of(path)
    flip(path, offset % len(CONTENT))
    assert fingerprint_of(path) == before


def test_a_longer_file_is_another(path: Path) -> None:
    before = fingerprint_of(path)
    with path.open("ab") as file:
        file.write(bytes(32))
    assert fingerprint_of(path) != before


def test_every_number_of_the_layout_matters(path: Path) -> None:
    fields: dict[str, Any] = {"tensor": "x", "file": "x", "offset": 1, "expert_bytes": 1, "rows": 1, "columns": 1}
    with ModelFiles.open(path) as gguf:
        layout = ExpertLayout.of(gguf, Geometry.of(gguf))
        first, second = layout.layers
        up = [replace(first.up, **{name: found}) for name, found in (fields | {"type": TensorType.F32}).items()]
        others = [
            replace(layout, experts=5),
            replace(layout, width=65),
            replace(layout, expert_width=97),
            replace(layout, layers=(first,)),
            *(replace(layout, layers=(replace(first, up=changed), second)) for changed in up),
        ]
        assert len({fingerprint(gguf, other) for other in [layout, *others]}) == 1 + len(others)


def test_a_file_that_shrank_is_an_error(path: Path) -> None:
    with ModelFiles.open(path) as gguf:
        layout = ExpertLayout.of(gguf, Geometry.of(gguf))
        os.truncate(path, 1000)
        with pytest.raises(ModelError, match=r"model\.gguf: .* was it truncated\?"):
            fingerprint(gguf, layout)


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
