"""What a shared arena is to hold, and where in its file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from hashlib import blake2b

VERSION = 1
"""Of header and layout; part of the file's name, so that versions never meet in a file."""

HEADER_BYTES = 4096

MARKS = 1024
"""Where in the header the marks of the units begin, a byte each."""

MAX_UNITS = HEADER_BYTES - MARKS

_PAGE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaLayout:
    """Units one after the other, each from the start of a page, behind a header of one page.

    ValueError for a fingerprint that cannot be part of a file's name, no units or too many, or one of no bytes.
    """

    fingerprint: str
    """Of the model: up to 32 digits and small letters."""
    units: tuple[tuple[str, int], ...]
    """Name and bytes of each; what is loaded in one piece, and loaded again if whoever did it died meanwhile."""
    origin: str = ""
    """What else must be the same for all who share, for example when the files were modified."""
    offsets: tuple[int, ...] = field(init=False)
    """Where each unit begins in the file."""
    bytes: int = field(init=False)
    """Of the file."""

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-z]{1,32}", self.fingerprint):
            raise ValueError(f"fingerprint must be 1 to 32 digits and small letters, found {self.fingerprint!r}")
        if not 1 <= len(self.units) <= MAX_UNITS:
            raise ValueError(f"an arena has 1 to {MAX_UNITS} units, found {len(self.units)}")
        if (least := min(size for _, size in self.units)) < 1:
            raise ValueError(f"a unit has at least one byte, found {least}")
        offsets, end = [], HEADER_BYTES
        for _, size in self.units:
            offsets.append(end)
            end += size + -size % _PAGE
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "bytes", end)

    @property
    def digest(self) -> str:
        """16 hex digits of everything stated here."""
        stated = json.dumps([VERSION, self.fingerprint, self.origin, self.units])
        return blake2b(stated.encode(), digest_size=8).hexdigest()

    @property
    def file_name(self) -> str:
        """The same for all who can share, and for nobody else."""
        return f"expertmesh-{self.fingerprint}-{self.digest}.arena"


FILE_NAME = re.compile("expertmesh-[0-9a-z]{1,32}-[0-9a-f]{16}[.]arena")
"""What `ArenaLayout.file_name` looks like."""
