"""`expertmesh worker`: an expert worker started by hand, on this or another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from coordinator.cli.device_options import Gib
from coordinator.cli.holding import CONNECT, DRAIN_S, KEYS, NAME, ORPHAN_S, become
from coordinator.cli.numbers import Whole
from coordinator.cli.paths import MODEL, MODEL_HELP, Place
from coordinator.config import MAX_THREADS, default_threads
from protocol.expert_sources import SOURCES


@click.command("worker")
@CONNECT
@click.option("--model", type=MODEL, help=MODEL_HELP)
@click.option(
    "--cache",
    type=Place(file_okay=False),
    metavar="DIR",
    help="Instead of a model: a folder, into which the weights of this worker's experts are fetched.",
)
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
def command(
    threads: int | None, source: str, ram_gib: str, headroom_gib: str, cache: Path | None, **common: Any
) -> None:
    """Hold experts for the coordinator at ENDPOINT until it stops or is gone."""
    if (common["model"] is None) == (cache is None):
        raise click.UsageError("--model FILE or --cache DIR is expected, one of them")
    files = () if cache is None else (f"--cache={cache}",)
    tiers = (f"--source={source}", f"--ram-gib={ram_gib}", f"--headroom-gib={headroom_gib}")
    become("expert_worker.main", f"--threads={threads or default_threads()}", *files, *tiers, **common)
