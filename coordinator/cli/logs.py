"""`expertmesh logs`: what the processes of a cluster that `up` started have written."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import click

from coordinator.cli.numbers import Whole
from coordinator.cli.this_cluster import ITS_CONFIG, config_of
from coordinator.config import DEFAULT_LISTEN
from coordinator.interrupts import Interrupted, Interrupts
from protocol.errors import ConfigError

LOOK_S = 0.2
"""How long a new line can go unnoticed."""


@click.command("logs")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@ITS_CONFIG
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option(
    "-n", "--lines", type=Whole(0, 10**5), default=40, show_default=True, help="Of each process, the last so many."
)
@click.pass_obj
def command(interrupts: Interrupts, /, names: tuple[str, ...], config: Path | None, follow: bool, lines: int) -> None:
    """Show what the processes called NAME have written, or all of the cluster; the launcher's own are `launcher`."""
    with interrupts.held():
        from coordinator.log_reading import LogReader
        from coordinator.process_logs import names_in

    folder = _folder(config)
    known = names_in(folder)
    if not known:
        raise ConfigError(f"there are no logs in {folder}: has this cluster been up?")
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"{folder} has no log of {', '.join(unknown)}; it has those of {', '.join(known)}")
    with LogReader(folder, names) as reader:
        try:
            _show(reader.last(lines))
            while follow:
                time.sleep(LOOK_S)
                _show(reader.more())
        except Interrupted:
            return


def _folder(path: Path | None) -> Path:
    from coordinator.process_logs import default_folder

    config = config_of(path)
    if config is None:
        return default_folder(DEFAULT_LISTEN)
    return config.launch.logs or default_folder(config.coordinator.listen)


def _show(lines: Iterable[tuple[str, str]]) -> None:
    from coordinator.cli.output import put
    from coordinator.cli.wording import harmless

    put("".join(f"{name}: {harmless(line)}\n" for name, line in lines))
