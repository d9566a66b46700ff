"""`expertmesh status`: what a running cluster does, and where its experts' bytes come from."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.holding import KEYS
from coordinator.cli.numbers import Whole
from coordinator.cli.paths import CONFIG
from coordinator.cli.whereabouts import whereabouts
from coordinator.interrupts import Interrupts


@click.command("status")
@click.argument("endpoint", required=False)
@click.option("--config", type=CONFIG, help="The file of the cluster, instead of ENDPOINT.")
@KEYS
@click.option("--json", "as_json", is_flag=True, help="Print the coordinator's report as one line of JSON.")
@click.option("--watch", is_flag=True, help="Ask once a second until Ctrl-C, and tell what happened in between, too.")
@click.option(
    "--within-s",
    type=Whole(1, 3600),
    default=10,
    show_default=True,
    help="Give up after so many seconds without an answer; a coordinator answers between two layers.",
)
@click.pass_obj
def command(
    interrupts: Interrupts,
    /,
    endpoint: str | None,
    config: Path | None,
    keys: Path | None,
    as_json: bool,
    watch: bool,
    within_s: int,
) -> None:
    """Ask the coordinator that listens at ENDPOINT (by default tcp://127.0.0.1:7600) for its state.

    Experts are counted once for each message that needs them: computed from copies in memory, from the page cache, or
    read from files first. A worker whose experts have all been in memory for a while stops looking, and counts none.
    """
    where, known = whereabouts(endpoint, config, keys)
    with interrupts.held():
        from coordinator.cli.asking import tell_status

    tell_status(where, keys=known, as_json=as_json, watch=watch, within_s=within_s)
