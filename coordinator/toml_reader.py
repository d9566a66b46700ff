"""Reading a TOML document against what it may say: every problem is collected, with its line and key."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError
from protocol.keys import DialKeys, ListenKeys

Read = Callable[[Any], Any]
"""Takes a key's TOML value and returns what the program uses; ValueError says what is wrong with it."""

KeysOf = Callable[[Mapping[str, Any]], Mapping[str, Read]]
"""Takes a table as it was found and returns the keys that it may have: what one may say can depend on another."""

NOT_YET = "not available yet"

MAX_BYTES = 1 << 20
"""Of a document: far more than anybody writes, and what is no document need not be read to its end."""

MAX_SHOWN = 80
"""Characters of a wrong value that are shown."""


def shown(value: Any) -> str:
    """A value as a TOML file would have it, more or less, and its beginning if it is long."""
    whole = json.dumps(value, ensure_ascii=False, default=str)
    return whole if len(whole) <= MAX_SHOWN else f"{whole[:MAX_SHOWN]}..."


def whole(low: int, high: int) -> Read:
    """A whole number from `low` to `high`."""

    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high} is expected, found {shown(value)}")
        return value

    return read


def text(pattern: str, kind: str) -> Read:
    """A string that `pattern` matches whole; `kind` tells a person what that is."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(f"{kind} is expected, found {shown(value)}")
        return value

    return read


def one_of(*choices: Any) -> Read:
    """One of `choices`."""

    def read(value: Any) -> Any:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise ValueError(f"{' or '.join(map(shown, choices))} is expected, found {shown(value)}")
        return value

    return read


def only(now: Any) -> Read:
    """`now`, the one value that works in this version; others are known, and refused as not available yet."""

    def read(value: Any) -> Any:
        if value != now:
            raise ValueError(f"{shown(value)} is {NOT_YET}; {shown(now)} is")
        return value

    return read


def later(value: Any) -> Any:
    """No value: the key is known, and refused as not available yet."""
    raise ValueError(f"this is {NOT_YET}; take it out")


def model_beside(folder: Path) -> Read:
    """A file that can be read, or a folder; a relative path starts at `folder`."""

    def read(value: Any) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"the path of a model is expected, found {shown(value)}")
        path = folder / os.path.expanduser(value)
        try:
            mode = path.stat().st_mode
            if stat.S_ISREG(mode):
                path.open("rb").close()
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ValueError(f"{path} is neither a file nor a folder")
        return path.absolute()  # not resolved: the names of links count, those of a split model above all

    return read


def keys_beside(folder: Path, *, to_listen: bool = False) -> Read:
    """A key file, or a folder of keys, which is needed `to_listen`; a relative path starts at `folder`."""

    def read(value: Any) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"the path of keys is expected, found {shown(value)}")
        path = (folder / os.path.expanduser(value)).absolute()
        if to_listen:
            ListenKeys.load(path)
        DialKeys.load(path)
        return path

    return read


def made_beside(folder: Path) -> Read:
    """A file that may come to be, in a folder that is there; a relative path starts at `folder`."""

    def read(value: Any) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"the path of a file is expected, found {shown(value)}")
        path = (folder / os.path.expanduser(value)).absolute()
        if not os.path.isdir(path.parent):
            raise ValueError(f"{path.parent} is no folder")
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError(f"{path} is not a file")
        return path

    return read


def file_beside(folder: Path) -> Read:
    """A file that can be read; a relative path starts at `folder`."""

    def read(value: Any) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"the path of a file is expected, found {shown(value)}")
        path = (folder / os.path.expanduser(value)).absolute()
        try:
            path.open("rb").close()
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        return path

    return read


def folder_beside(folder: Path) -> Read:
    """A folder, or none yet; a relative path starts at `folder`."""

    def read(value: Any) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"the path of a folder is expected, found {shown(value)}")
        path = (folder / os.path.expanduser(value)).absolute()
        if os.path.exists(path) and not os.path.isdir(path):
            raise ValueError(f"{path} is not a folder")
        return path

    return read


class Reader:
    """One document, and the problems found in it so far."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError if there is no TOML to read at `path`."""
        self.path = path
        self._problems: list[tuple[int, str]] = []
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise ConfigError(f"{path}: not a TOML file of ours: longer than {MAX_BYTES} bytes")
            source = content.decode("utf-8-sig")
            self.document: dict[str, Any] = tomllib.loads(source)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: not a TOML file: byte {error.start} is not UTF-8 text") from None
        except ValueError as error:  # its text names line and column
            raise ConfigError(f"{path}: not a TOML file: {error}") from None
        except RecursionError:
            raise ConfigError(f"{path}: not a TOML file of ours: tables or lists too deep within each other") from None
        self._lines = _key_lines(source)

    def sections(self, known: Mapping[str, bool]) -> None:
        """Sections that a file may have, each with whether it must."""
        for section in self.document:
            if section not in known:
                self.problem(section, 0, None, f"unknown; known are {', '.join(known)}")
        for section, required in known.items():
            if required and section not in self.document:
                self.problem(section, 0, None, "this section is missing")

    def table(self, section: str, keys: Mapping[str, Read], required: tuple[str, ...] = ()) -> dict[str, Any]:
        """The good values of the one table `[section]`."""
        value = self.document.get(section)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.problem(section, 0, None, f"a table is expected: [{section}]")
            return {}
        return self._read(section, 0, value, keys, required)

    def tables(self, section: str, keys_of: KeysOf, required: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        """The good values of each table `[[section]]`."""
        value = self.document.get(section, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.problem(section, 0, None, f"tables are expected: [[{section}]]")
            return []
        return [self._read(section, index, item, keys_of(item), required) for index, item in enumerate(value)]

    def _read(
        self, section: str, index: int, found: dict[str, Any], keys: Mapping[str, Read], required: tuple[str, ...]
    ) -> dict[str, Any]:
        good = {}
        for key, value in found.items():
            if key not in keys:
                known = ", ".join(name for name, reads in keys.items() if reads is not later)
                self.problem(section, index, key, f"unknown; known are {known}")
                continue
            try:
                good[key] = keys[key](value)
            except (ValueError, ConfigError) as error:
                self.problem(section, index, key, str(error))
        for key in required:
            if key not in found:
                self.problem(section, index, None, f"the key {key} is missing")
        return good

    def problem(self, section: str, index: int, key: str | None, reason: str) -> None:
        """Note that `key` (or all) of the section's table number `index` is wrong."""
        line = self._lines.get((section, index, key)) or self._lines.get((section, index, None)) or 1
        self._problems.append((line, f"{self.path}, line {line}: {section}{f'.{key}' if key else ''}: {reason}"))

    def finish(self) -> None:
        """Raise ConfigError with one line for each problem, if there are any."""
        if self._problems:
            raise ConfigError("\n".join(line for _, line in sorted(self._problems)))


_HEADER = re.compile(r"\s*\[\[?\s*([\w-]+)")
_KEY = re.compile(r"\s*(?:([\w-]+)\s*\.\s*)?([\w-]+)\s*=")


def _key_lines(source: str) -> dict[tuple[str, int, str | None], int]:
    """Line, counted from 1, of each (section, table number, key), and of each section with None as the key.

    tomllib tells no lines. This scan knows the usual forms; what it misses is reported at its section's line.
    """
    lines: dict[tuple[str, int, str | None], int] = {}
    counts: dict[str, int] = {}
    section, index = "", 0
    for number, line in enumerate(source.splitlines(), 1):
        if header := _HEADER.match(line):
            section = header[1]
            index = counts.get(section, 0)
            counts[section] = index + 1
            lines[section, index, None] = number
        elif key := _KEY.match(line):
            if section:
                lines.setdefault((section, index, key[2]), number)
            else:
                lines.setdefault((key[1] or key[2], 0, key[2] if key[1] else None), number)
    return lines
