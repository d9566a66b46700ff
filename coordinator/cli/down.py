"""`expertmesh down`: end a cluster that `up` keeps running on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.this_cluster import ITS_CONFIG, listen_of
from coordinator.interrupts import Interrupts

DOWN_S = 60.0
"""Far above the time that a launcher takes to end everything, by force if need be."""


@click.command("down")
@ITS_CONFIG
@click.pass_obj
def command(interrupts: Interrupts, /, config: Path | None) -> None:
    """End the cluster that `expertmesh up` keeps running here, on all its machines, as Ctrl-C would; wait for that."""
    with interrupts.held():
        from coordinator.cli.output import put
        from coordinator.cli.wording import harmless
        from coordinator.launcher_desk import TakeDown, ask_launcher

    for line in ask_launcher(listen_of(config), TakeDown(), DOWN_S):
        put(f"{harmless(line)}\n")
