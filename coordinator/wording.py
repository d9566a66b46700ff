"""Numbers with their nouns, for whoever tells people something."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """For example 1 worker, 2 workers."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
