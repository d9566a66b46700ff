"""Command lines that must be refused: run in this process, judged by all that they say."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from coordinator.cli import run
from coordinator.demo import demo_model

Rows = Mapping[str, tuple[str, str]]
"""By name: what is typed after `expertmesh`, and the whole of what is said, its lines without `error: `.

`{folder}` is where the files are, `{demo}` the demo model.
"""


def check_refused(command: str, expected: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The command ends with code 2 and exactly these lines on stderr; nothing is printed, made or left running."""
    before = _everything(folder)
    code = run([_filled(word, folder) for word in shlex.split(command)])
    output, errors = capfd.readouterr()
    assert errors == "".join(f"error: {line}\n" for line in _filled(expected, folder).split("\n"))
    assert (code, output) == (2, "")
    assert _everything(folder) == before
    assert psutil.Process().children() == []


def _filled(text: str, folder: Path) -> str:
    return text.replace("{folder}", str(folder)).replace("{demo}", str(demo_model()))


def _everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))
