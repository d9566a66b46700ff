"""Text on stdout, at once; what goes wrong with that is told of stdout by name."""

from __future__ import annotations

import os

STDOUT = 1


def put(text: str) -> None:
    """Write all of it, with nothing left in a buffer to fail at exit. OSError names stdout."""
    rest = memoryview(text.encode("utf-8", "surrogateescape"))
    while rest:
        try:
            rest = rest[os.write(STDOUT, rest) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, "stdout") from None
