"""How much of a GPU's memory experts may take, as it is said on command lines."""

from __future__ import annotations

import argparse

MAX_VRAM_GIB = 4096
VRAM_GIB = f"auto or a number from 0 to {MAX_VRAM_GIB}"
"""What is expected, in words."""


def read_vram_gib(text: str) -> float | None:
    """GiB; None for "auto". ValueError for anything else."""
    if text == "auto":
        return None
    gib = float(text)
    if not 0 <= gib <= MAX_VRAM_GIB:  # which NaN is not
        raise ValueError(text)
    return gib


def vram_gib_argument(text: str) -> float | None:
    """The same for an argument parser, which shows the words of its error."""
    try:
        return read_vram_gib(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} found, {VRAM_GIB} expected") from None
