"""`expertmesh lookahead`: a lookahead process started by hand, on a machine whose workers were started by hand."""

from __future__ import annotations

from typing import Any

import click

from coordinator.cli.holding import CONNECT, ITS_MODEL, KEYS, NAME, ORPHAN_S, become
from coordinator.config import PREDICTORS


@click.command("lookahead")
@CONNECT
@ITS_MODEL
@NAME
@KEYS
@click.option("--predictor", type=click.Choice(PREDICTORS), default=PREDICTORS[0], show_default=True)
@ORPHAN_S
def command(predictor: str, **common: Any) -> None:
    """Have experts read before workers on this machine need them, until the coordinator at ENDPOINT stops or is gone.

    One for each machine whose workers compute from files that do not fit in its memory.
    """
    become("expert_worker.lookahead.main", f"--predictor={predictor}", **common)
