"""`expertmesh model`: looking after model files."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.paths import MODEL
from coordinator.interrupts import Interrupts

NOT_SUPPORTED = 1
"""Exit code of an inspection that found a reason why the model cannot be run."""


@click.group("model")
def command() -> None:
    """Look after model files."""


@command.command("inspect", short_help="Tell what a model holds, and whether it can be run.")
@click.argument("path", metavar="FILE", type=MODEL)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def inspect_command(context: click.Context, path: Path, as_json: bool) -> None:
    """Tell what a GGUF model holds, what of it fits where on this machine, and whether it can be run.

    FILE is its file, one of its files, or their folder. No weights are read. The exit code is 0 if the model can be
    run, and 1 if not; then all reasons are listed.
    """
    with (context.find_object(Interrupts) or Interrupts()).held():
        from coordinator.cli.inspection_view import as_object, as_text
        from coordinator.cli.output import put
        from coordinator.gpus import gpus_here
        from coordinator.inspection import inspect
        from protocol.host_memory import host_memory
        from protocol.shards import ModelFiles

    with ModelFiles.open(path) as files:
        found = inspect(files)
        put((as_object if as_json else as_text)(files, found, host_memory(), gpus_here()))
    context.exit(NOT_SUPPORTED if found.problems else 0)
