"""Ports that nobody has, for clusters on TCP."""

from __future__ import annotations

import socket
from contextlib import suppress


def three_ports() -> int:
    """The first of three neighbouring ports that nobody has."""
    return neighbouring_ports(3)


def neighbouring_ports(count: int) -> int:
    """The first of so many that nobody has."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first, suppress(OSError, OverflowError):
            port: int = first.getsockname()[1]
            for other in range(port + 1, port + count):
                socket.create_server(("127.0.0.1", other)).close()
            return port
