"""Numbers with their nouns and units, for whoever tells people something."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """For example 1 worker, 2 workers."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def size(count: int) -> str:
    """Bytes in words, in the units in which memory is asked for."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}" if count < 1000 * scale else f"{count / scale:.0f} {unit}"
    return counted(count, "byte")
