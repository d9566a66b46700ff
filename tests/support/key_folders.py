"""Keys for tests: a coordinator's, of those that it lets in, and of strangers."""

from __future__ import annotations

from pathlib import Path

from coordinator.key_files import add_key, make_folder
from protocol.keys import ALLOWED_FOLDER, DialKeys


def key_folder(folder: Path, *names: str) -> Path:
    """A coordinator's folder with a key for each of the names, beside its own."""
    make_folder(folder)
    for name in names:
        add_key(folder, name)
    return folder


def take_back(folder: Path, name: str) -> None:
    """That key is allowed no more."""
    (folder / ALLOWED_FOLDER / f"{name}.pub").unlink()


def stranger_of(folder: Path, other: Path) -> DialKeys:
    """Who knows the coordinator of `folder`, but has a key that only another one, at `other`, lets in."""
    return DialKeys(
        coordinator=DialKeys.load(folder).coordinator,
        secret=DialKeys.load(key_folder(other)).secret,
        origin="elsewhere",
    )


def secrets_of(folder: Path) -> list[str]:
    """Whatever must not be seen anywhere else."""
    lines = [line for path in folder.glob("*.key") for line in path.read_text().splitlines()]
    return [line.split('"')[1] for line in lines if line.startswith("secret")]
