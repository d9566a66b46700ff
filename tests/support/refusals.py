"""Command lines that must be refused: run in this process, judged by all that they say."""

from __future__ import annotations

import os
import shlex
import struct
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from coordinator.cli import run
from coordinator.demo import demo_model
from coordinator.profile_file import MAGIC

Rows = Mapping[str, tuple[str, str]]
"""By name: what is typed after `expertmesh`, and the whole of what is said, its lines without `error: `.

`{folder}` is where the files are, `{demo}` the demo model.
"""

KEY = "0" * 40
FILES: dict[str, bytes] = {
    "latin1.txt": b"ok\xe9",
    "mark.txt": b"\xef\xbb\xbf",
    "empty.txt": b"",
    "bytes.toml": b"[model]\xff",
    "deep.toml": b"x = " + b"[" * 5000,
    "empty.toml": b"",
    "no-value.toml": b"[model]\npath = \n",
    "one.profile": MAGIC + struct.pack("<IIIIQ16sd", 1, 1, 1, 0, 0, b"0123456789abcdef", 0),
    "open.key": f'secret = "{KEY}"\ncoordinator = "{KEY}"\n'.encode(),
    "bad.key": b'secret = "hunter2"\n',
    "other.profile": MAGIC + struct.pack("<IIIIQ16sd", 1, 1, 1, 0, 0, b"f" * 16, 0),
}
"""Files that are wrong, by name."""


def fill(folder: Path) -> Path:
    """Write FILES, a cluster file that is good and one with another model, and a pipe that nobody writes to."""
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    good = f'[model]\npath = "{demo_model()}"\n'
    (folder / "good.toml").write_text(good)
    (folder / "other-model.toml").write_text(f'{good}[[workers]]\nname = "box"\nmodel_path = "{folder}/other.gguf"\n')
    os.mkfifo(folder / "pipe")
    return folder


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
