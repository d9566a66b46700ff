"""`expertmesh status`: what a running cluster does, and where its experts' bytes come from."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.holding import KEYS
from coordinator.cli.numbers import Whole
from coordinator.cli.paths import CONFIG
from coordinator.config import DEFAULT_LISTEN
from coordinator.interrupts import Interrupts
from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError
from protocol.keys import dial_keys


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
    if endpoint is not None and config is not None:
        raise ConfigError("ENDPOINT and --config exclude each other: the file says where its cluster listens")
    if keys is not None and config is not None:
        raise ConfigError("--keys and --config exclude each other: the file says which keys its cluster has")
    where, keys = _listens(config) if config is not None else (_endpoint(endpoint or DEFAULT_LISTEN, keys), keys)
    with interrupts.held():
        from coordinator.cli.asking import tell_status

    tell_status(where, keys=dial_keys(keys), as_json=as_json, watch=watch, within_s=within_s)


def _listens(config: Path) -> tuple[str, Path | None]:
    """Endpoint, and keys."""
    from coordinator.cluster_file import read_config

    cluster = read_config(config)
    return check_endpoint(cluster.coordinator.listen, dial=True, keyed=cluster.keys is not None), cluster.keys


def _endpoint(text: str, keys: Path | None) -> str:
    if "://" not in text and Path(text).exists():
        raise ConfigError(f"ENDPOINT is the path {text}: a cluster file is given as --config {text}")
    return check_endpoint(text, dial=True, keyed=keys is not None)
