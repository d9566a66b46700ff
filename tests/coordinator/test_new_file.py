"""Files that appear when they are complete: what they may replace, and that nothing else is ever left."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator import new_file as module
from coordinator.new_file import new_file
from protocol.errors import ConfigError


def write(path: Path | str, keep: Path, content: bytes = b"new") -> None:
    with new_file(str(path), keep=[keep], option="--out") as file:
        file.write(content)


@pytest.fixture
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("model") / "m.gguf"
    path.write_bytes(b"weights")
    return path


@pytest.fixture(params=["unnamed", "named"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, on a file system that has files without a name, or has not."""
    if request.param == "named":
        monkeypatch.setattr(module.os, "O_TMPFILE", os.O_DIRECTORY)  # which cannot be opened for writing
    return tmp_path


def test_a_file_comes_or_is_replaced(folder: Path, model: Path) -> None:
    out = folder / "x.npy"
    for content in (b"first", b"second"):
        write(out, model, content)
        assert out.read_bytes() == content
    assert [path.name for path in folder.iterdir()] == ["x.npy"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_one_and_its_target_is_written(folder: Path, model: Path, there: bool) -> None:
    target, link = folder / "target", folder / "link"
    link.symlink_to("target")
    if there:
        target.write_bytes(b"old")
    write(link, model)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert len(list(folder.iterdir())) == 2


def fifo(path: Path) -> None:
    os.mkfifo(path)


def to_a_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")


def to_itself(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [fifo, to_a_fifo, to_itself, Path.mkdir])
def test_only_a_file_is_replaced(folder: Path, model: Path, make: Callable[[Path], None]) -> None:
    out = folder / "out"
    make(out)
    before = sorted((path.name, path.lstat().st_mode, path.lstat().st_ino) for path in folder.iterdir())
    with pytest.raises(ConfigError, match=r"--out: .*/out cannot be written: (what is there is not a file|Too many)"):
        write(out, model)
    assert sorted((path.name, path.lstat().st_mode, path.lstat().st_ino) for path in folder.iterdir()) == before


@pytest.mark.parametrize("link", [None, os.link, os.symlink])
def test_the_model_is_never_replaced(folder: Path, model: Path, link: Callable[[Path, Path], None] | None) -> None:
    out = model if link is None else folder / "out"
    if link is not None:
        link(model, out)
    with pytest.raises(ConfigError, match="cannot be written: it is the model"):
        write(out, model)
    assert model.read_bytes() == b"weights"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("", "--out: an empty path cannot be written: No such file"),
        ("{folder}/no/x", "--out: .*/no/x cannot be written: No such file"),
        ("{folder}/new/", "--out: .*/new/ cannot be written: No such file"),
        ("{model}/x", "--out: .*/x cannot be written: Not a directory"),
        ("/", "--out: / cannot be written: what is there is not a file"),
        ("{folder}/" + "x" * 256, "cannot be written: File name too long"),
    ],
)
def test_where_no_file_can_be_is_told_in_words(folder: Path, model: Path, path: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        write(path.format(folder=folder, model=model), model)
    assert list(folder.iterdir()) == []


def test_a_folder_that_takes_no_files(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(module.os, "open", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match="x cannot be written: Permission denied"):
        write(folder / "x", model)


def fail(path: Path, keep: Path, error: Exception) -> None:
    with new_file(str(path), keep=[keep], option="--out") as file:
        file.write(b"half")
        raise error


def test_a_full_disk_and_a_failed_block_leave_what_was_there(folder: Path, model: Path) -> None:
    out = folder / "x"
    out.write_bytes(b"old")
    full = OSError(errno.ENOSPC, "No space left on device")
    for error, told in ((full, ConfigError), (ValueError("no"), ValueError)):
        with pytest.raises(told):
            fail(out, model, error)
        assert out.read_bytes() == b"old"
        assert [path.name for path in folder.iterdir()] == ["x"]


@pytest.mark.timeout(30)
def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path, model: Path) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom coordinator.new_file import new_file\n"
        "with new_file(sys.argv[1], keep=[Path(sys.argv[2])], option='--out') as file:\n"
        "    file.write(bytes(10**6))\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path / "x"), str(model)]
    done = subprocess.run(arguments, cwd=Path(__file__).parents[2], timeout=20)
    assert done.returncode == -9
    assert list(tmp_path.iterdir()) == []
