"""`expertmesh hosted`: what a launcher on another machine runs here, over ssh. Nothing for people to type."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from coordinator.cli.numbers import Whole
from coordinator.cli.paths import Place
from coordinator.config import MAX_THREADS
from coordinator.hosts import MODULES
from coordinator.interrupts import Interrupts


@click.group("hosted", hidden=True)
def command() -> None:
    """Do something here for a launcher on another machine."""


@command.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--cores", type=Whole(0, MAX_THREADS), default=0, help="Bind it to so many cores that nobody else has.")
@click.argument("kind", type=click.Choice(list(MODULES)))
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def run(interrupts: Interrupts, /, cores: int, kind: str, options: tuple[str, ...]) -> int:
    """Run a process of that KIND until it ends, or until stdin does, on which lines name signals for it."""
    with interrupts.held():
        from coordinator.dialling import as_seen_here, dials, with_endpoint
        from coordinator.hosted import run_hosted

    options = tuple(with_endpoint(options, as_seen_here(dials(options), os.environ.get("SSH_CONNECTION", ""))))
    return run_hosted((sys.executable, "-P", "-m", MODULES[kind], *options), cores)


@command.command("check")
@click.option("--model", "models", multiple=True, type=Place())
@click.option("--dial", "endpoints", multiple=True, metavar="ENDPOINT")
@click.option("--cache", "caches", multiple=True, type=Place())
@click.option("--listen", "own", multiple=True, metavar="ENDPOINT")
@click.pass_obj
def check(
    interrupts: Interrupts,
    /,
    models: tuple[Path, ...],
    endpoints: tuple[str, ...],
    caches: tuple[Path, ...],
    own: tuple[str, ...],
) -> None:
    """Tell, as a line of JSON, what runs here, how much memory there is, and what is at these paths and endpoints."""
    with interrupts.held():
        from coordinator.cli.output import put
        from coordinator.host_check import look_around

    put(json.dumps(look_around(models, endpoints, caches, own)) + "\n")


@command.command("hold")
@click.pass_obj
def hold(interrupts: Interrupts, /) -> int:
    """Do nothing until stdin ends."""
    with interrupts.held():
        from coordinator.hosted import hold

    return hold()
