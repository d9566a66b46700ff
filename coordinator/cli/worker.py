"""`expertmesh worker`: an expert worker started by hand, on this or another machine."""

from __future__ import annotations

from typing import Any

import click

from coordinator.cli.holding import CONNECT, ITS_MODEL, NAME, ORPHAN_S, become
from coordinator.cli.numbers import Whole
from coordinator.config import MAX_THREADS, default_threads


@click.command("worker")
@CONNECT
@ITS_MODEL
@NAME
@click.option("--threads", type=Whole(1, MAX_THREADS), help="[default: the cores it may use]")
@ORPHAN_S
def command(threads: int | None, **common: Any) -> None:
    """Hold experts for the coordinator at ENDPOINT until it stops or is gone."""
    become("expert_worker.main", f"--threads={threads or default_threads()}", **common)
