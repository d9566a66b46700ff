"""Whole numbers on a command line, refused in the words that the program has for all its settings."""

from __future__ import annotations

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


class Share(click.FloatRange):
    """A share, from 0 to 1."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """ConfigError names the option, what was found and what was expected."""
        try:
            share: float = super().convert(value, param, ctx)
        except click.BadParameter:
            share = float("nan")
        if not 0 <= share <= 1:
            option = param.opts[0] if param is not None else "a share"
            raise ConfigError(f"{option} is {value or 'empty'}, expected a number from 0 to 1")
        return share
