"""The workers of one cluster on one machine, told by whoever started them: what is a fair share of its memory. Pure."""

from __future__ import annotations

import argparse
import zlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
    """A worker and those beside it that are planned alike."""

    family: int
    """A number that they share and others do not; 0 for a worker of which nothing is said."""
    here: int
    """How many they are, this one included."""
    part: float | None
    """Of the model's experts, what all of them hold together; None where that is not known."""

    def fair(self, available: int, headroom: int, taken: int) -> int:
        """Of `available` bytes, of which `headroom` are to stay free, what one may plan with, `headroom` included.

        `taken` bytes are promised to, or used by, the others. So it makes no difference who plans first: each may have
        its part of the room that there was before any of them had something.
        """
        if self.here == 1:
            return available
        room = max(0, available - headroom)
        return min(available, headroom + (room + taken) // self.here)


ALONE = Siblings(family=0, here=1, part=None)
"""A worker that was started by hand."""


def siblings_argument(text: str, endpoint: str) -> Siblings:
    """Read "N/M", or "N" where M is of no use: N of the M workers of the cluster at `endpoint` are of this machine."""
    here, slash, all_of_them = text.partition("/")
    try:
        counts = int(here), int(all_of_them) if slash else int(here)
    except ValueError:
        counts = 0, 0
    if not 1 <= counts[0] <= counts[1]:
        raise argparse.ArgumentTypeError(f"{text} found, N or N/M with N from 1 to M expected")
    family = zlib.crc32(endpoint.encode()) | 1 << 32
    return Siblings(family=family, here=counts[0], part=counts[0] / counts[1] if slash else None)
