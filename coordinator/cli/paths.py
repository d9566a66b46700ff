"""The kinds of path that several commands take."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click


class Place(click.Path):
    """A path at which something may come to be, or be found out to be missing."""

    def __init__(self, *, file_okay: bool = True, allow_dash: bool = False) -> None:
        super().__init__(path_type=Path, file_okay=file_okay, allow_dash=allow_dash)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if not os.fspath(value):  # which would be the folder that the shell is in
            self.fail("an empty path", param, ctx)
        return super().convert(value, param, ctx)


class Existing(click.Path):
    """A path at which something is; if not, the operating system says why."""

    def __init__(self, *, folder: bool) -> None:
        """Whether it may be a `folder`."""
        super().__init__(path_type=Path)
        self._folder = folder

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> os.PathLike[str]:
        try:
            mode = os.stat(value).st_mode
        except OSError as error:
            self.fail(f"{value or 'an empty path'}: {error.strerror}", param, ctx)
        if stat.S_ISDIR(mode) and not self._folder:
            self.fail(f"{value}: a file is expected, this is a folder", param, ctx)
        return Path(value)


CONFIG = Existing(folder=False)
"""A cluster file."""

MODEL = Existing(folder=True)
"""A GGUF file, one of the files of a split model, or their folder."""

MODEL_HELP = "The GGUF model: its file, one of its files, or their folder."
