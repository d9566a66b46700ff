"""`expertmesh worker`: an expert worker started by hand, on this or another machine."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import click

from coordinator.config import MAX_THREADS, default_threads


@click.command("worker")
@click.option("--connect", required=True, metavar="ENDPOINT", help="Where the coordinator listens: tcp://host:port.")
@click.option(
    "--model", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The GGUF model file."
)
@click.option("--name", default=None, help="What to call it.  [default: host name and process number]")
@click.option("--threads", type=click.IntRange(1, MAX_THREADS), help="[default: the cores it may use]")
def command(connect: str, model: Path, name: str | None, threads: int | None) -> None:
    """Hold experts for the coordinator at ENDPOINT until it stops or is gone."""
    arguments = ["--connect", connect, "--model", str(model)]
    arguments += ["--name", name or f"{socket.gethostname()}-{os.getpid()}"]
    arguments += ["--threads", str(threads or default_threads())]
    os.execv(sys.executable, [sys.executable, "-P", "-m", "expert_worker.main", *arguments])
