"""Which cluster a command is about that speaks to what `expertmesh up` started on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.paths import CONFIG
from coordinator.config import DEFAULT_LISTEN, MAX_WORKERS, ClusterConfig
from protocol.errors import ConfigError

ITS_CONFIG = click.option(
    "--config", type=CONFIG, help=f"The file of the cluster.  [default: the one at {DEFAULT_LISTEN}]"
)


def config_of(path: Path | None) -> ClusterConfig | None:
    """What the file says, if one was named."""
    if path is None:
        return None
    from coordinator.cluster_file import read_config

    return read_config(path)


def listen_of(path: Path | None) -> str:
    """Where the cluster of the file listens."""
    config = config_of(path)
    return DEFAULT_LISTEN if config is None else config.coordinator.listen


def counts_of(words: tuple[str, ...], option: str) -> dict[str, int]:
    """Each NAME=COUNT. ConfigError names the first that is none."""
    counts: dict[str, int] = {}
    for word in words:
        name, _, count = word.rpartition("=")
        if not name or not count.isdecimal() or int(count) > MAX_WORKERS:
            raise ConfigError(f"{option} is {word or 'empty'}, expected NAME=COUNT, from 0 to {MAX_WORKERS}")
        if name in counts:
            raise ConfigError(f"{option} names {name} twice")
        counts[name] = int(count)
    return counts
