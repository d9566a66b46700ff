"""Values that a key of a TOML document may have: each reader takes what was found and returns what it means."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.keys import DialKeys, ListenKeys

Read = Callable[[Any], Any]
"""Takes a key's TOML value and returns what the program uses; ValueError says what is wrong with it."""

NOT_YET = "not available yet"

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


def number(low: float, high: float) -> Read:
    """A number from `low` to `high`."""

    def read(value: Any) -> float:
        if type(value) not in (int, float) or not low <= value <= high:
            raise ValueError(f"a number from {low:g} to {high:g} is expected, found {shown(value)}")
        return float(value)

    return read


def yes_or_no(value: Any) -> bool:
    """A truth value."""
    if type(value) is not bool:
        raise ValueError(f"true or false is expected, found {shown(value)}")
    return value


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
        path = _path(value, folder, "a model")
        try:
            mode = path.stat().st_mode
            if stat.S_ISREG(mode):
                path.open("rb").close()
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ValueError(f"{path} is neither a file nor a folder")
        return path

    return read


def keys_beside(folder: Path, *, to_listen: bool = False) -> Read:
    """A key file, or a folder of keys, which is needed `to_listen`; a relative path starts at `folder`."""

    def read(value: Any) -> Path:
        path = _path(value, folder, "keys")
        if to_listen:
            ListenKeys.load(path)
        DialKeys.load(path)
        return path

    return read


def made_beside(folder: Path) -> Read:
    """A file that may come to be, in a folder that is there; a relative path starts at `folder`."""

    def read(value: Any) -> Path:
        path = _path(value, folder, "a file")
        if not os.path.isdir(path.parent):
            raise ValueError(f"{path.parent} is no folder")
        if os.path.exists(path) and not os.path.isfile(path):
            raise ValueError(f"{path} is not a file")
        return path

    return read


def file_beside(folder: Path) -> Read:
    """A file that can be read; a relative path starts at `folder`."""

    def read(value: Any) -> Path:
        path = _path(value, folder, "a file")
        try:
            path.open("rb").close()
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        return path

    return read


def folder_beside(folder: Path) -> Read:
    """A folder, or none yet; a relative path starts at `folder`."""

    def read(value: Any) -> Path:
        path = _path(value, folder, "a folder")
        if os.path.exists(path) and not os.path.isdir(path):
            raise ValueError(f"{path} is not a folder")
        return path

    return read


def _path(value: Any, folder: Path, what: str) -> Path:
    """Absolute, but not resolved: the names of links count, those of a split model above all."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"the path of {what} is expected, found {shown(value)}")
    return (folder / os.path.expanduser(value)).absolute()
