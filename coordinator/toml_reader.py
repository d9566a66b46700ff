"""Reading a TOML document against what it may say: every problem is collected, with its line and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coordinator.toml_values import Read, later
from protocol.errors import ConfigError

KeysOf = Callable[[Mapping[str, Any]], Mapping[str, Read]]
"""Takes a table as it was found and returns the keys that it may have: what one may say can depend on another."""

MAX_BYTES = 1 << 20
"""Of a document: far more than anybody writes, and what is no document need not be read to its end."""


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
