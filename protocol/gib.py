"""The unit of memory, and how much of it experts may take, as that is said on command lines."""

from __future__ import annotations

import argparse

GIB = 1 << 30
"""Bytes."""
MAX_GIB = 4096
GIB_EXPECTED = f"auto or a number from 0 to {MAX_GIB}"
"""In words."""


def read_gib(text: str) -> float | None:
    """GiB; None for "auto". ValueError for anything else."""
    if text == "auto":
        return None
    gib = float(text)
    if not 0 <= gib <= MAX_GIB:  # which NaN is not
        raise ValueError(text)
    return gib


def gib_argument(text: str) -> float | None:
    """The same for an argument parser, which shows the words of its error."""
    try:
        return read_gib(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} found, {GIB_EXPECTED} expected") from None
