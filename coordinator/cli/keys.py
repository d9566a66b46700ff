"""`expertmesh keys`: keys for clusters that span machines."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.paths import Place

FOLDER = Place()


@click.group("keys")
def command() -> None:
    """Make the keys that a cluster needs to listen to other machines.

    With keys, all between processes is encrypted, and nobody comes in who has none of the cluster's.
    """


@command.command("new", short_help="Make a folder of keys.")
@click.argument("folder", type=FOLDER)
def new_command(folder: Path) -> None:
    """Make FOLDER: a coordinator's key, and one that processes on its machine dial with.

    Name it in the cluster file, as path under [keys]. Who may come in has a file in FOLDER/allowed: take it out, and
    his key is worth nothing from then on.
    """
    from coordinator.cli.output import put
    from coordinator.key_files import make_folder

    for path in make_folder(folder):
        put(f"{path}\n")


@command.command("add", short_help="Make a key for another machine.")
@click.argument("folder", type=FOLDER)
@click.argument("name")
@click.option("--gives", is_flag=True, help="Make a folder FOLDER/NAME, for a machine that gives what is in a cache.")
def add_command(folder: Path, name: str, gives: bool) -> None:
    """Make a key called NAME for another machine, and have the coordinator of FOLDER let it in, also if it runs.

    Copy the secret file FOLDER/NAME.key there (scp keeps its mode with -p), and give it by --keys. With --gives it is
    a folder: whoever may come in there has a file in its own folder `allowed`, which is a copy.
    """
    from coordinator.cli.output import put
    from coordinator.key_files import add_key

    for path in add_key(folder, name, gives=gives):
        put(f"{path}\n")
