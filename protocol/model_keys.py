"""The metadata of one architecture, `ARCHITECTURE.name`: numbers that make sense, or an error that names the key."""

from __future__ import annotations

import math
from collections.abc import Sequence

from protocol.errors import ModelError
from protocol.gguf_header import shorten
from protocol.gguf_metadata import Metadata

_MAX_NUMBER = 2**31 - 1  # positions and ids are int32


class ModelKeys:
    """Getters by a key's name without its architecture. ModelError for another type, a bad value, or none at all."""

    def __init__(self, metadata: Metadata, architectures: Sequence[str]) -> None:
        """ModelError unless the architecture is one of these."""
        self._metadata = metadata
        self.architecture = metadata.text("general.architecture")
        if self.architecture not in architectures:
            raise ModelError(
                f"{metadata.path}: architecture {shorten(self.architecture)} is not supported; "
                f"supported: {', '.join(architectures)}"
            )

    def __contains__(self, name: str) -> bool:
        return self._key(name) in self._metadata

    def size(self, name: str, default: int | None = None) -> int:
        """An integer of at least 1. A default of 0 is none: what it was derived from makes no sense."""
        if default and name not in self:
            return default
        return self._integer(name, 1)

    def size_or(self, name: str, default: int) -> int:
        """An integer of at least 1; 0 stands for the default, as a missing key does."""
        return self.count(name) or default

    def count(self, name: str) -> int:
        """An integer of at least 0, which is the default."""
        return self._integer(name, 0) if name in self else 0

    def number(self, name: str, default: float | None = None, *, above: float = 0, unset: float | None = None) -> float:
        """A finite number above a bound; the value `unset` stands for the default."""
        found = self._number(name, default)
        if default is not None and found == unset:
            return default
        if not (math.isfinite(found) and found > above):
            raise self.wrong(name, found, f"a number above {above:g}")
        return found

    def factor(self, name: str) -> float:
        """A finite number of at least 1, which is the default; 0 stands for it."""
        found = self._number(name, 1.0) or 1.0
        if not (math.isfinite(found) and found >= 1):
            raise self.wrong(name, found, "a number of at least 1")
        return found

    def flag(self, name: str, default: bool) -> bool:
        """True or False."""
        return self._metadata.flag(self._key(name), default)

    def text(self, name: str, default: str) -> str:
        """A string."""
        return self._metadata.text(self._key(name), default)

    def wrong(self, name: str, found: object, expected: str) -> ModelError:
        """The error for a value that cannot be."""
        return ModelError(f"{self._metadata.path}: {self._key(name)!r} is {found}, expected {expected}")

    def _key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def _integer(self, name: str, least: int) -> int:
        found = self._metadata.integer(self._key(name))
        if not least <= found <= _MAX_NUMBER:
            raise self.wrong(name, found, f"{least} to {_MAX_NUMBER}")
        return found

    def _number(self, name: str, default: float | None) -> float:
        if default is not None and name not in self:
            return default
        return self._metadata.number(self._key(name))
