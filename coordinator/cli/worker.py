"""`expertmesh worker`: an expert worker started by hand, on this or another machine."""

from __future__ import annotations

from typing import Any

import click

from coordinator.cli.device_options import Gib
from coordinator.cli.holding import CONNECT, DRAIN_S, ITS_MODEL, KEYS, NAME, ORPHAN_S, become
from coordinator.cli.numbers import Whole
from coordinator.config import MAX_THREADS, default_threads
from protocol.expert_sources import SOURCES


@click.command("worker")
@CONNECT
@ITS_MODEL
@NAME
@KEYS
@click.option("--threads", type=Whole(1, MAX_THREADS), help="[default: the cores it may use]")
@click.option(
    "--source",
    type=click.Choice(SOURCES),
    default="auto",
    show_default=True,
    help="Where experts' bytes come from: the mapped file, copies of what fits, an arena of all, one shared by all "
    "workers of this machine, or direct reads.",
)
@click.option(
    "--ram-gib", type=Gib(), default="auto", show_default=True, help="GiB for copies or slots; auto: what fits."
)
@click.option("--headroom-gib", type=Gib(), default="auto", show_default=True, help="GiB left to everything else.")
@ORPHAN_S
@DRAIN_S
def command(threads: int | None, source: str, ram_gib: str, headroom_gib: str, **common: Any) -> None:
    """Hold experts for the coordinator at ENDPOINT until it stops or is gone."""
    tiers = (f"--source={source}", f"--ram-gib={ram_gib}", f"--headroom-gib={headroom_gib}")
    become("expert_worker.main", f"--threads={threads or default_threads()}", *tiers, **common)
