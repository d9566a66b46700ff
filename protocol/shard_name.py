"""What the files of a split model are called: NAME-00001-of-0000N.gguf and so on."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardName:
    """What the name of one file of a split model says."""

    folder: Path
    stem: str
    number: int
    """From 1."""
    count: int

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """None if the file's name is not that of a shard."""
        if not (found := _NAME.fullmatch(path.name)):
            return None
        return cls(folder=path.parent, stem=found["stem"], number=int(found["number"]), count=int(found["count"]))

    @property
    def path(self) -> Path:
        """The file of this name."""
        return self.folder / f"{self.stem}-{self.number:05d}-of-{self.count:05d}.gguf"

    def all(self) -> list[Path]:
        """The files of all numbers, in order."""
        return [replace(self, number=number).path for number in range(1, self.count + 1)]
