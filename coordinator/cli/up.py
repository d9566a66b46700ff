"""`expertmesh up`: the local processes of a cluster file, kept running until Ctrl-C."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from coordinator.cli.lookahead_option import LOOKAHEAD_OPTION
from coordinator.cli.numbers import Fraction
from coordinator.cli.paths import CONFIG
from coordinator.cli.this_cluster import counts_of
from coordinator.cluster_file import read_config
from coordinator.halves import When
from coordinator.interrupts import Interrupts
from coordinator.launch_plan import LaunchPlan
from protocol.errors import ConfigError


@click.command("up")
@click.argument("config", type=CONFIG)
@LOOKAHEAD_OPTION
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Who runs the workers of this machine: the launcher, or a Ray cluster on any of its nodes.",
)
@click.option("--ray-address", metavar="ADDRESS", help="Of the Ray cluster.  [default: the one of this machine]")
@click.option(
    "--audit", type=Fraction(0, 1), help="Share of workers' answers to compute here again and compare, 0 to 1."
)
@click.option(
    "--scale", multiple=True, metavar="NAME=COUNT", help="Another number of workers of a group; may be repeated."
)
@click.option("--dry-run", is_flag=True, help="Check it all, print the processes that would be started, and stop.")
@click.pass_obj
def command(
    interrupts: Interrupts,
    /,
    config: Path,
    lookahead: When | None,
    engine: str,
    ray_address: str | None,
    audit: float | None,
    scale: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Start the cluster that CONFIG describes, show its state, restart what ends; Ctrl-C stops it all."""
    cluster = read_config(config)
    if lookahead is not None:
        cluster = replace(cluster, lookahead=replace(cluster.lookahead, enabled=lookahead))
    if ray_address is not None and engine != "ray":
        raise ConfigError("--ray-address is of use with --engine ray only")
    if audit is not None:
        cluster = replace(cluster, coordinator=replace(cluster.coordinator, audit=audit))
    if scale:
        from coordinator.scaling import scaled

        cluster = scaled(cluster, counts_of(scale, "--scale"))
    with interrupts.held():
        from coordinator.cli.dry_run import show_plan
        from coordinator.cli.keeping_up import keep_up
        from coordinator.on_ray.plan import placed_by_ray

    def placed(plan: LaunchPlan) -> LaunchPlan:
        return placed_by_ray(plan, ray_address or "auto") if engine == "ray" else plan

    if dry_run:
        show_plan(cluster, placed=placed)
    elif engine == "ray":
        from coordinator.on_ray.nodes import problems_of_ray

        keep_up(cluster, interrupts, placed, lambda: problems_of_ray(cluster, placed))
    else:
        keep_up(cluster, interrupts, placed)
