"""The keys and values of a GGUF file, with getters that check what they give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from protocol.errors import ModelError
from protocol.gguf_header import shorten

D = TypeVar("D")
K = TypeVar("K")
_REQUIRED: Any = object()


class Metadata(Mapping[str, Any]):
    """Scalars as int, float, bool or str; arrays as read-only numpy arrays or a `StringArray`."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        """`path` is where they were found: errors start with it."""
        self.path = path
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def text(self, key: str, default: D = _REQUIRED) -> str | D:
        """A string. ModelError if the value is of another type, or missing and no default was given."""
        return self._value(key, str, "a string", default)

    def integer(self, key: str, default: D = _REQUIRED) -> int | D:
        """An integer of any width. Errors as for `text`."""
        return self._value(key, int, "an integer", default)

    def number(self, key: str, default: D = _REQUIRED) -> float | D:
        """A float or an integer, as float. Errors as for `text`."""
        if type(self._values.get(key)) is int:
            return float(self._values[key])
        return self._value(key, float, "a number", default)

    def flag(self, key: str, default: D = _REQUIRED) -> bool | D:
        """A bool. Errors as for `text`."""
        return self._value(key, bool, "a bool", default)

    def _value(self, key: str, kind: type[K], expected: str, default: D) -> K | D:
        found = self._values.get(key, _REQUIRED)
        if found is _REQUIRED:
            if default is _REQUIRED:
                raise ModelError(f"{self.path}: key {shorten(key)} is missing")
            return default
        if type(found) is not kind:  # isinstance would take a bool for an integer
            raise ModelError(f"{self.path}: key {shorten(key)} is {described(found)}, expected {expected}")
        return found


def described(found: object) -> str:
    """A value in words, fit to be shown."""
    if isinstance(found, str):
        return f"the string {shorten(found)}"
    return f"{type(found).__name__} {found}" if isinstance(found, (bool, int, float)) else "an array"
