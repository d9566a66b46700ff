"""`expertmesh model`: looking after model files."""

from __future__ import annotations

import re
from pathlib import Path

import click

from coordinator.cli.paths import MODEL, Place
from coordinator.config import MAX_WORKERS
from coordinator.interrupts import Interrupts
from protocol.errors import ConfigError

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
    run (a share: held by a worker), and 1 if not; then all reasons are listed.
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


def _share(context: click.Context, option: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """N/M, the Nth of M shares, as two numbers."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", value)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count <= MAX_WORKERS:
        raise ConfigError(f"--share is {value or 'empty'}, expected N/M, such as 1/2; {MAX_WORKERS} shares at most")
    return number, count


@command.command("pack", short_help="Make a pack of a model: the fast form of its weights.")
@click.argument("path", metavar="MODEL", type=MODEL)
@click.argument("out", metavar="[OUT]", type=Place(), required=False)
@click.option(
    "--share", callback=_share, metavar="N/M", help="Only the experts of the Nth of M workers, for that worker."
)
@click.pass_obj
def pack_command(interrupts: Interrupts, /, path: Path, out: Path | None, share: tuple[int, int] | None) -> None:
    """Make a pack of a GGUF model, OUT: its weights in the order in which the kernels read them.

    A pack is used like the model, with the same bits, and faster. OUT is NAME.packed.gguf beside the model if it is not
    given. If the command is stopped, it leaves OUT.partial, from which the same command goes on.
    """
    with interrupts.held():
        from coordinator.cli.pack_files import pack
        from protocol.pack import Share

    pack(path, out, None if share is None else Share(number=share[0], count=share[1]))


@command.command("verify", short_help="Check models and packs, byte by byte.")
@click.argument("paths", metavar="FILE...", type=Place(), nargs=-1, required=True)
@click.option("--against", type=MODEL, metavar="MODEL", help="Compare the weights of each FILE with this model's.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verify_command(context: click.Context, paths: tuple[Path, ...], against: Path | None, as_json: bool) -> None:
    """Check model files against themselves: their structure, holes, and, of packs, the digests of all that is in them.

    The exit code is 0 if all FILEs are sound, and 1 if not; then all problems are listed.
    """
    with (context.find_object(Interrupts) or Interrupts()).held():
        from coordinator.cli.pack_files import verify_files

    context.exit(0 if verify_files(paths, against, as_json=as_json) else NOT_SUPPORTED)
