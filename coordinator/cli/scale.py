"""`expertmesh scale`: another number of workers, while the cluster is up."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.this_cluster import ITS_CONFIG, counts_of, listen_of
from coordinator.interrupts import Interrupts

MARGIN_S = 60.0
"""Beyond what a launcher gives newcomers, or those that leave."""


@click.command("scale")
@click.argument("counts", nargs=-1, required=True, metavar="NAME=COUNT...")
@ITS_CONFIG
@click.pass_obj
def command(interrupts: Interrupts, /, counts: tuple[str, ...], config: Path | None) -> None:
    """Have COUNT workers of the group NAME, for each that is given, in the cluster that `expertmesh up` keeps running.

    Answers go on meanwhile. If a new worker cannot be had, all new ones go again. The cluster file stays as it is.
    """
    with interrupts.held():
        from coordinator.cli.output import put
        from coordinator.cli.wording import harmless
        from coordinator.launcher_desk import Scale, ask_launcher
        from coordinator.scaling import READY_S
        from coordinator.supervisor import LEAVE_S

    wish = Scale(counts=counts_of(counts, "NAME=COUNT"))
    for line in ask_launcher(listen_of(config), wish, READY_S + LEAVE_S + MARGIN_S):
        put(f"{harmless(line)}\n")
