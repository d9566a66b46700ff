"""Making keys: the folder of a coordinator, and one key, or folder, for each machine that dials it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from protocol.errors import ConfigError
from protocol.keys import (
    ALLOWED_FOLDER,
    CLIENT_FILE,
    PUBLIC_SUFFIX,
    SECRET_SUFFIX,
    SERVER_FILE,
    ListenKeys,
    is_key_name,
)
from protocol.wire import new_pair, public_of

OURS = CLIENT_FILE.removesuffix(SECRET_SUFFIX)
"""What the key is called that processes on the coordinator's machine dial with."""


def make_folder(folder: Path) -> list[Path]:
    """A coordinator's key and a first one to dial with; their files. ConfigError if there is one already."""
    if (folder / SERVER_FILE).exists():
        raise ConfigError(
            f"{folder / SERVER_FILE} is there already; `expertmesh keys add` makes further keys to dial with"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / ALLOWED_FOLDER).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from None
    _, secret = new_pair()
    server = folder / SERVER_FILE
    _write(server, 0o600, "An expertmesh coordinator's secret key: it stays on this machine.", secret=secret)
    return [server, *_add(folder, OURS, public_of(secret))]


def add_key(folder: Path, name: str, *, gives: bool = False) -> list[Path]:
    """A key called `name` that the coordinator of `folder` lets in; its files, the secret ones first.

    One of a machine that `gives` weights is a folder, also with a key to listen with and those that are allowed now.
    ConfigError, and nothing changed, if there is one of that name or no coordinator's key.
    """
    if not is_key_name(name):
        expected = "1 to 40 letters, digits, dots, dashes and underscores"
        raise ConfigError(f"a key cannot be called {name!r}, expected {expected}, beginning with a letter or digit")
    coordinator = public_of(ListenKeys.load(folder).secret)
    return _add_folder(folder, name, coordinator) if gives else _add(folder, name, coordinator)


def _add_folder(folder: Path, name: str, coordinator: str) -> list[Path]:
    made = folder / name
    try:
        made.mkdir(mode=0o700)
    except OSError as error:
        raise ConfigError(f"{made}: {error.strerror}") from None
    try:
        _write(made / SERVER_FILE, 0o600, f"The secret key that {name} gives weights with.", secret=new_pair()[1])
        files = [made / SERVER_FILE, *_add(folder, name, coordinator, made / CLIENT_FILE)]
        shutil.copytree(folder / ALLOWED_FOLDER, made / ALLOWED_FOLDER)
    except (ConfigError, OSError) as error:
        shutil.rmtree(made)
        raise error if isinstance(error, ConfigError) else ConfigError(f"{made}: {error}") from None
    return files


def _add(folder: Path, name: str, coordinator: str, ours: Path | None = None) -> list[Path]:
    public, secret = new_pair()
    ours, allowed = ours or folder / f"{name}{SECRET_SUFFIX}", folder / ALLOWED_FOLDER / f"{name}{PUBLIC_SUFFIX}"
    if allowed.exists():
        raise ConfigError(f"{allowed} is there already: a key is called {name}")
    about = f"The secret key {name} of an expertmesh cluster: whoever has it may join, ask, and stop it."
    _write(ours, 0o600, about, secret=secret, coordinator=coordinator)
    try:
        _write(allowed, 0o644, f"Lets in whoever has the secret key {name}, while this file is here.", public=public)
    except ConfigError:
        ours.unlink(missing_ok=True)
        raise
    return [ours, allowed]


def _write(path: Path, mode: int, about: str, **values: str) -> None:
    """A new file, which nobody else can read from the beginning if `mode` says so."""
    text = "".join([f"# {about}\n", *(f'{key} = "{value}"\n' for key, value in values.items())])
    try:
        with open(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "w", encoding="utf-8"
        ) as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} is there already") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
