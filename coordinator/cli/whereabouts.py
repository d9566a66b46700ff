"""Which coordinator a command speaks to, and with which keys: an endpoint, or the one that a cluster's file names."""

from __future__ import annotations

from pathlib import Path

from coordinator.config import DEFAULT_LISTEN
from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError
from protocol.keys import DialKeys, dial_keys


def whereabouts(endpoint: str | None, config: Path | None, keys: Path | None) -> tuple[str, DialKeys | None]:
    """The endpoint to dial, DEFAULT_LISTEN if neither is given, and the keys; ConfigError if that is none, or two."""
    if endpoint is not None and config is not None:
        raise ConfigError("ENDPOINT and --config exclude each other: the file says where its cluster listens")
    if keys is not None and config is not None:
        raise ConfigError("--keys and --config exclude each other: the file says which keys its cluster has")
    where, keys = _listens(config) if config is not None else (_endpoint(endpoint or DEFAULT_LISTEN, keys), keys)
    return where, dial_keys(keys)


def _listens(config: Path) -> tuple[str, Path | None]:
    """Endpoint, and keys."""
    from coordinator.cluster_file import read_config

    cluster = read_config(config)
    return check_endpoint(cluster.coordinator.listen, dial=True, keyed=cluster.keys is not None), cluster.keys


def _endpoint(text: str, keys: Path | None) -> str:
    if "://" not in text and Path(text).exists():
        raise ConfigError(f"ENDPOINT is the path {text}: a cluster file is given as --config {text}")
    return check_endpoint(text, dial=True, keyed=keys is not None)
