"""Bytes put into a file at a place, all of them."""

from __future__ import annotations

import os


def write_all(file: int, data: bytes | memoryview, offset: int) -> None:
    """OSError if that cannot be; some of them may be there then."""
    rest = memoryview(data).cast("B")
    while rest:
        count = os.pwrite(file, rest, offset)
        rest, offset = rest[count:], offset + count
