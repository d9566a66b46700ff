"""`expertmesh worker`: an expert worker started by hand, on this or another machine."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import click

from coordinator.cli.numbers import Whole
from coordinator.cli.paths import MODEL, MODEL_HELP
from coordinator.config import MAX_THREADS, default_threads
from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError
from protocol.startup import SIGNALS


@click.command("worker")
@click.option("--connect", required=True, metavar="ENDPOINT", help="Where the coordinator listens: tcp://host:port.")
@click.option("--model", required=True, type=MODEL, help=MODEL_HELP)
@click.option("--name", default=None, help="What to call it.  [default: host name and process number]")
@click.option("--threads", type=Whole(1, MAX_THREADS), help="[default: the cores it may use]")
@click.option(
    "--orphan-s",
    type=Whole(1, 10**6),
    default=60,
    show_default=True,
    help="Leave after so many seconds without a coordinator.",
)
def command(connect: str, model: Path, name: str | None, threads: int | None, orphan_s: int) -> None:
    """Hold experts for the coordinator at ENDPOINT until it stops or is gone."""
    from coordinator.hello import MAX_NAME, is_name

    check_endpoint(connect, dial=True)
    name = f"{socket.gethostname()[:40]}-{os.getpid()}" if name is None else name
    if not is_name(name):
        raise ConfigError(f"--name is {name!r}, expected 1 to {MAX_NAME} printable characters")
    arguments = [f"--connect={connect}", f"--model={model}", f"--name={name}"]  # which may begin with a dash
    arguments += [f"--threads={threads or default_threads()}", f"--orphan-s={orphan_s}"]
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until protocol.startup has them end it without a traceback
    os.execv(sys.executable, [sys.executable, "-P", "-m", "expert_worker.main", *arguments])
