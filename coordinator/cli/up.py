"""`expertmesh up`: the local processes of a cluster file, kept running until Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.plan_view import print_plan
from coordinator.config import read_config
from coordinator.cores import usable_cores
from coordinator.interrupts import Interrupts
from coordinator.launch_plan import plan_here
from coordinator.probe import somebody_listens
from protocol.errors import ConfigError


@click.command("up")
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print the processes that would be started, and stop.")
@click.pass_obj
def command(interrupts: Interrupts, /, config: Path, dry_run: bool) -> None:
    """Start the cluster that CONFIG describes, show its state, restart what ends; Ctrl-C stops it all."""
    cluster = read_config(config)
    if dry_run:
        print_plan(plan_here(cluster, usable_cores()))
        return
    listen = cluster.coordinator.listen
    if somebody_listens(listen):
        raise ConfigError(f"{listen} is in use already: is this cluster up?")
    from coordinator.cli.keeping_up import keep_up

    keep_up(cluster, interrupts)
