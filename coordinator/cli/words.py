"""Words on a command line that are handed on to other programs, in files that these read."""

from __future__ import annotations

import click

from protocol.errors import ConfigError


class Word(click.ParamType[str]):
    """Some letters, all of which can be printed: what has none, or a line break, would say something else there."""

    name = "text"

    def __init__(self, *, spaces: bool = False) -> None:
        """Whether it may have `spaces`, as paths may."""
        self._spaces = spaces

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """ConfigError names the option, what was found and what was expected."""
        if not value or not value.isprintable() or (" " in value and not self._spaces):
            option = param.opts[0] if param is not None else "a word"
            expected = "letters that can be printed" if self._spaces else "letters that can be printed, and no spaces"
            raise ConfigError(f"{option} is {value!r}, expected {expected}")
        return value
