"""`expertmesh weights`: gives what is in a worker's cache to the workers of other machines."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from coordinator.cli.holding import CONNECT
from coordinator.cli.paths import Place
from protocol.bulk import DEFAULT_MB_S, MAX_MB_S
from protocol.endpoints import check_endpoint, check_named
from protocol.startup import SIGNALS


@click.command("weights")
@CONNECT
@click.option(
    "--keys",
    type=Place(),
    metavar="FOLDER",
    help="Keys to dial and to listen with, as `expertmesh keys add --gives` makes them.",
)
@click.option("--cache", required=True, type=Place(file_okay=False), metavar="DIR", help="Of a worker here.")
@click.option("--listen", required=True, metavar="ENDPOINT", help="Where other workers dial.")
@click.option(
    "--mb-s",
    type=click.FloatRange(0, MAX_MB_S, min_open=True),
    default=DEFAULT_MB_S,
    show_default=True,
    help="Megabytes a second at most, to all together.",
)
def command(connect: str, keys: Path | None, cache: Path, listen: str, mb_s: float) -> None:
    """Give the weights in a cache to other workers, so that not all of them come from the coordinator."""
    check_endpoint(connect, dial=True, keyed=keys is not None)
    check_named(listen, keyed=keys is not None)
    arguments = [f"--connect={connect}", f"--cache={cache}", f"--listen={listen}", f"--mb-s={mb_s:.12g}"]
    arguments += [] if keys is None else [f"--keys={keys}"]
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until protocol.startup has them end it without a traceback
    os.execv(sys.executable, [sys.executable, "-P", "-m", "expert_worker.weights.main", *arguments])
