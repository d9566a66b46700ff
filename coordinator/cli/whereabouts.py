"""Which coordinator a command is to speak to: an endpoint, or the one that a cluster's file names."""

from __future__ import annotations

from pathlib import Path

from coordinator.config import DEFAULT_LISTEN
from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError


def whereabouts(endpoint: str | None, config: Path | None) -> str:
    """The endpoint to dial, DEFAULT_LISTEN if neither is given; ConfigError if both are, or if it is none."""
    if endpoint is not None and config is not None:
        raise ConfigError("ENDPOINT and --config exclude each other: the file says where its cluster listens")
    return _listens(config) if config is not None else _endpoint(DEFAULT_LISTEN if endpoint is None else endpoint)


def _listens(config: Path) -> str:
    from coordinator.cluster_file import read_config

    return check_endpoint(read_config(config).coordinator.listen, dial=True)


def _endpoint(text: str) -> str:
    if "://" not in text and Path(text).exists():
        raise ConfigError(f"ENDPOINT is the path {text}: a cluster file is given as --config {text}")
    return check_endpoint(text, dial=True)
