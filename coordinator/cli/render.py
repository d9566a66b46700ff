"""`expertmesh render`: a cluster file in the forms of supervisors that people already run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from coordinator.cli.paths import CONFIG, Place
from coordinator.cli.words import Word
from coordinator.interrupts import Interrupts

OUT = click.option("-o", "--out", type=Place(), metavar="FOLDER", help="Write files there.")
THEIR_PYTHON = click.option(
    "--python",
    type=Word(spaces=True),
    default=sys.executable,
    metavar="FILE",
    help="The interpreter there.  [default: this one]",
)


@click.group("render")
def command() -> None:
    """Render a cluster file for systemd, Slurm or Kubernetes: docs/supervisors.md."""


@command.command("systemd", short_help="Services, and a target for all of them.")
@click.argument("config", type=CONFIG)
@OUT
@THEIR_PYTHON
@click.option("--user", type=Word(), default=None, metavar="NAME", help="Whom they run as.  [default: whoever renders]")
@click.option(
    "--host", type=Word(), default=None, metavar="NAME", help="Of another machine in the file, instead of this one."
)
@click.pass_obj
def systemd_command(
    interrupts: Interrupts, /, config: Path, out: Path | None, python: str, user: str | None, host: str | None
) -> None:
    """A service for each process of this machine, with what the launcher would start, and a target."""
    with interrupts.held():
        from coordinator.cli.rendering import render_systemd

    render_systemd(config, out, python=python, user=user, host=host)


@command.command("slurm", short_help="A batch script.")
@click.argument("config", type=CONFIG)
@OUT
@THEIR_PYTHON
@click.pass_obj
def slurm_command(interrupts: Interrupts, /, config: Path, out: Path | None, python: str) -> None:
    """A script for `sbatch`: one node without keys, and as many as Slurm gives with them."""
    with interrupts.held():
        from coordinator.cli.rendering import render_slurm

    render_slurm(config, out, python=python)


@command.command("kubernetes", short_help="Manifests.")
@click.argument("config", type=CONFIG)
@OUT
@click.option(
    "--image", type=Word(), required=True, metavar="NAME", help="Of containers in which python3 has this program."
)
@click.option(
    "--claim", type=Word(), required=True, metavar="NAME", help="Of the PersistentVolumeClaim with the models."
)
@click.pass_obj
def kubernetes_command(interrupts: Interrupts, /, config: Path, out: Path | None, image: str, claim: str) -> None:
    """Manifests for `kubectl apply`: one pod without keys, and a pod for each process with them."""
    with interrupts.held():
        from coordinator.cli.rendering import render_kubernetes

    render_kubernetes(config, out, image=image, claim=claim)
