"""The work of `expertmesh drain`: ask a coordinator, and wait until the worker has left."""

from __future__ import annotations

from coordinator.cli.output import put
from coordinator.client import Client
from coordinator.hello import MAX_NAME, is_name
from coordinator.probe import somebody_listens
from protocol.errors import ConfigError
from protocol.keys import DialKeys

GREETING_S = 10.0
"""How long a coordinator may take to answer: it does so between two layers."""


def drain(endpoint: str, keys: DialKeys | None, name: str, within_s: float) -> None:
    """Returns when it has left; ConfigError if it cannot, or does not in time."""
    if not is_name(name):
        raise ConfigError(f"NAME is {name[: MAX_NAME + 1]!r}, expected 1 to {MAX_NAME} printable characters")
    if not somebody_listens(endpoint):
        raise ConfigError(f"nothing listens at {endpoint}: is this cluster up?")
    with Client(endpoint, keys=keys) as client:
        client.greet(GREETING_S)
        client.drain(name, within_s)
    put(f"{name} has left; others hold its experts\n")
