"""The option that says whether there is a lookahead process."""

from __future__ import annotations

from typing import get_args

import click

from coordinator.halves import When

LOOKAHEAD_OPTION = click.option(
    "--lookahead",
    type=click.Choice(get_args(When)),
    help="Have workers' experts read before they are needed.  [default: auto, where they do not fit in memory]",
)
