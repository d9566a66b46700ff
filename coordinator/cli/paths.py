"""The kinds of path that several commands take."""

from __future__ import annotations

from pathlib import Path

import click

CONFIG = click.Path(exists=True, dir_okay=False, path_type=Path)
"""A cluster file."""

MODEL = click.Path(exists=True, path_type=Path)
"""A GGUF file, one of the files of a split model, or their folder."""

MODEL_HELP = "The GGUF model: its file, one of its files, or their folder."
