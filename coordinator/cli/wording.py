"""Words for people at a terminal: durations, shares, and texts of others so that it shows and does not obey them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """For example 48 s, 2 min 10 s, 1 h 5 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def percent(share: float) -> str:
    """For example 0%, <1%, 38%, >99%, 100%: what is little is not nothing."""
    if 0 < share < 0.01:
        return "<1%"
    return ">99%" if 0.99 < share < 1 else f"{share:.0%}"


def harmless(text: object) -> str:
    """The text in one line, with what cannot be printed as escapes."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))
