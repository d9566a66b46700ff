"""`expertmesh drain`: let a worker leave a running cluster without anybody noticing."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.holding import KEYS
from coordinator.cli.numbers import Whole
from coordinator.cli.paths import CONFIG
from coordinator.cli.whereabouts import whereabouts
from coordinator.interrupts import Interrupts


@click.command("drain")
@click.argument("name")
@click.argument("endpoint", required=False)
@click.option("--config", type=CONFIG, help="The file of the cluster, instead of ENDPOINT.")
@KEYS
@click.option(
    "--within-s",
    type=Whole(1, 86400),
    default=300,
    show_default=True,
    help="Wait so many seconds for it to leave; it leaves later, too.",
)
@click.pass_obj
def command(
    interrupts: Interrupts, /, name: str, endpoint: str | None, config: Path | None, keys: Path | None, within_s: int
) -> None:
    """Let the worker or peer NAME leave the cluster whose coordinator listens at ENDPOINT.

    By default that is tcp://127.0.0.1:7600. First others make its experts ready, then these compute, between two
    steps, and then its process ends. Answers go on meanwhile.
    """
    where, known = whereabouts(endpoint, config, keys)
    with interrupts.held():
        from coordinator.cli.draining import drain

    drain(where, known, name, within_s)
