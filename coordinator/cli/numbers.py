"""Numbers on a command line, refused in the words that the program has for all its settings."""

from __future__ import annotations

import math
from typing import Any

import click

from protocol.errors import ConfigError


class Whole(click.IntRange):
    """A whole number from `low` to `high`."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(low, high)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """ConfigError names the option, what was found and what was expected."""
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter:
            option = param.opts[0] if param is not None else "a number"
            expected = f"a whole number from {self.min} to {self.max}"
            raise ConfigError(f"{option} is {value or 'empty'}, expected {expected}") from None
        return number


class Fraction(click.FloatRange):
    """A number from `low` to `high`."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(low, high)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """ConfigError names the option, what was found and what was expected."""
        try:
            number: float = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            option = param.opts[0] if param is not None else "a number"
            expected = f"a number from {self.min:g} to {self.max:g}"
            raise ConfigError(f"{option} is {value or 'empty'}, expected {expected}")
        return number
