"""`expertmesh hosted`: what a launcher on another machine runs here, over ssh. Nothing for people to type."""

from __future__ import annotations

import sys

import click

from coordinator.cli.numbers import Whole
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
        from coordinator.hosted import run_hosted

    return run_hosted((sys.executable, "-P", "-m", MODULES[kind], *options), cores)
