"""Words for people: numbers with their nouns, and texts of others so that a terminal shows and does not obey them."""

from __future__ import annotations

from coordinator.wording import counted

__all__ = ["counted", "harmless"]


def harmless(text: object) -> str:
    """The text in one line, with what cannot be printed as escapes."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))
