"""Key files, and who may come in: what processes on different machines prove themselves with (docs/keys.md).

A key is a Curve25519 pair, each half 40 characters of Z85. Secrets are read from files that nobody else can read, and
are never shown: not by a repr, a log or an error.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from protocol.errors import ConfigError

log = logging.getLogger(__name__)

SERVER_FILE, CLIENT_FILE, ALLOWED_FOLDER = "server.key", "client.key", "allowed"
"""What a folder of keys has: the coordinator's secret, one key to dial with, and the public keys that may come in."""
SECRET_SUFFIX, PUBLIC_SUFFIX = ".key", ".pub"
LOOK_S = 0.5
"""How soon a change of the folder of allowed keys is noticed while somebody wants to come in, or speaks."""
MAX_FILE_BYTES = 4096
MAX_ALLOWED = 4096
"""Keys of one folder."""

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_LINE = re.compile(r'([a-z]+)\s*=\s*"([^"]*)"')
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
HOW_TO_MAKE = "`expertmesh keys new FOLDER` makes keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class DialKeys:
    """What a process dials with."""

    coordinator: str
    """The public key that the other side must prove to have."""
    secret: str = field(repr=False)
    origin: str
    """The file that it is from, for people."""

    @classmethod
    def load(cls, path: Path) -> DialKeys:
        """From a key file, or the `client.key` of a folder. ConfigError for what is not, or not kept secret."""
        path = path / CLIENT_FILE if path.is_dir() else path
        values = _read_secret(path, ("secret", "coordinator"))
        return cls(secret=values["secret"], coordinator=values["coordinator"], origin=str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenKeys:
    """What a coordinator, or whoever gives weights, listens with."""

    secret: str = field(repr=False)
    allowed: AllowList

    @classmethod
    def load(cls, folder: Path) -> ListenKeys:
        """From a folder of keys. ConfigError for what is not, or not kept secret."""
        if not folder.is_dir():
            raise ConfigError(f"keys: {folder}: a folder with {SERVER_FILE} is expected; {HOW_TO_MAKE}")
        secret = _read_secret(folder / SERVER_FILE, ("secret",))["secret"]
        return cls(secret=secret, allowed=AllowList(folder / ALLOWED_FOLDER))


class AllowList:
    """The public keys of one folder, which is looked at again while the process runs. Belongs to one thread."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read them all. ConfigError if the folder or a file of it cannot be read."""
        self.taken_back = 0
        """How often a key that was allowed turned out not to be any more."""
        self._folder = folder
        self._clock = clock
        self._looked_at = clock()
        try:
            self._seen = _look(folder)
        except OSError as error:
            raise ConfigError(f"keys: {folder}: {error.strerror}; {HOW_TO_MAKE}") from None
        self._names = {_read_public(folder / file.name): file.stem for file in self._files()}

    def __len__(self) -> int:
        return len(self._names)

    def name_of(self, public: str) -> str | None:
        """What the key is called that may come in; None if it may not."""
        now = self._clock()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._look_again()
        return self._names.get(public)

    def _files(self) -> list[Path]:
        return [Path(name) for name, *_ in self._seen]

    def _look_again(self) -> None:
        """Files that cannot be read let nobody in, and are logged."""
        try:
            seen = _look(self._folder)
        except OSError as error:
            log.warning("%s: %s: nobody is let in until it can be read", self._folder, error.strerror)
            seen = ()
        if seen == self._seen:
            return
        self._seen = seen
        names: dict[str, str] = {}
        for file in self._files():
            try:
                names[_read_public(self._folder / file.name)] = file.stem
            except ConfigError as error:
                log.warning("%s: nobody is let in by it", error)
        gone = [name for public, name in self._names.items() if public not in names]
        self.taken_back += bool(gone)
        self._names = names
        log.info("%d keys are allowed now%s", len(names), f"; taken back: {', '.join(gone)}" if gone else "")


def dial_keys(path: Path | None) -> DialKeys | None:
    """Those that a process was given, if it was given some. ConfigError as of DialKeys.load."""
    return None if path is None else DialKeys.load(path)


def giving_keys(path: Path) -> ListenKeys:
    """What a process that dials with `path` listens with to give from a cache. ConfigError as of ListenKeys.load."""
    if not path.is_dir():
        raise ConfigError(
            f"keys: {path}: a key to dial with, and whoever gives needs one to listen with, too: a folder of both is "
            "expected, as `expertmesh keys add FOLDER NAME --gives` makes it"
        )
    return ListenKeys.load(path)


def is_key_name(name: str) -> bool:
    """Whether a key, and its files, can be called that."""
    return _NAME.fullmatch(name) is not None and f"{name}{SECRET_SUFFIX}" != SERVER_FILE


def is_key(text: str) -> bool:
    """Whether it is 32 bytes in Z85."""
    if len(text) != 40 or not set(text) <= set(_ALPHABET):
        return False
    groups = (text[at : at + 5] for at in range(0, 40, 5))
    return all(_number(group) < 1 << 32 for group in groups)


def _number(group: str) -> int:
    total = 0
    for letter in group:
        total = total * 85 + _ALPHABET.index(letter)
    return total


def _look(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """What tells whether a file came, went or changed. OSError."""
    with os.scandir(folder) as entries:
        files = sorted((entry.name, entry.stat()) for entry in entries if entry.name.endswith(PUBLIC_SUFFIX))
    return tuple((name, found.st_ino, found.st_mtime_ns, found.st_size) for name, found in files[:MAX_ALLOWED])


def _read_secret(path: Path, keys: tuple[str, ...]) -> dict[str, str]:
    values, mode = _read(path, keys)
    if mode & 0o077:
        raise ConfigError(f"keys: {path}: others may read it, mode {mode:04o} found, 0600 expected: chmod 600 {path}")
    return values


def _read_public(path: Path) -> str:
    return _read(path, ("public",))[0]["public"]


def _read(path: Path, keys: tuple[str, ...]) -> tuple[dict[str, str], int]:
    """The values of a key file and its mode; what is in it never appears in an error."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            content = file.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(found.st_mode) else b""
    except OSError as error:
        raise ConfigError(f"keys: {path}: {error.strerror}; {HOW_TO_MAKE}") from None
    lines = content[:MAX_FILE_BYTES].decode("utf-8", "replace").splitlines()
    values = {match[1]: match[2] for line in lines if (match := _LINE.fullmatch(line.strip()))}
    for key in keys:
        if not is_key(values.get(key, "")):
            raise ConfigError(f'keys: {path}: no key file: a line {key} = "40 characters" is expected')
    return values, stat.S_IMODE(found.st_mode)
