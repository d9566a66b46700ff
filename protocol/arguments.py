"""Numbers on command lines, for argument parsers, which show the words of an error."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def number(kind: type[int] | type[float], lowest: float, highest: float) -> Callable[[str], float]:
    """Reads a number of that kind from `lowest` to `highest`, which NaN is not."""

    def number(text: str) -> float:  # whose name a parser tells: "invalid number value"
        value = kind(text)
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"{text} found, {lowest:g} to {highest:g} expected")
        return value

    return number
