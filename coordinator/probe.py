"""Whether anybody listens at an endpoint, told at once; a ZeroMQ socket would only stay silent."""

from __future__ import annotations

import socket

CONNECT_S = 3.0
"""Loopback connections are made or refused in far less, others too unless a packet is lost."""


def somebody_listens(endpoint: str) -> bool:
    """True if something accepts connections at a tcp or abstract ipc endpoint, whatever it is."""
    try:
        _connect(endpoint)
    except OSError:
        return False
    return True


def nobody_listens(endpoint: str) -> bool:
    """True if connections are refused there; False also if there is no telling, as when the network is cut."""
    try:
        _connect(endpoint)
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def _connect(endpoint: str) -> None:
    transport, _, address = endpoint.partition("://")
    if transport == "ipc":
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(CONNECT_S)
            probe.connect(address.replace("@", "\0", 1))
    else:
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
