"""Ports that nobody has, for clusters on TCP."""

from __future__ import annotations

import socket
from contextlib import suppress


def two_ports() -> int:
    """The first of two neighbouring ports that nobody has."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first, suppress(OSError):
            port: int = first.getsockname()[1]
            socket.create_server(("127.0.0.1", port + 1)).close()
            return port
