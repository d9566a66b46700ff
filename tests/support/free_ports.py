"""Ports that nobody has, for clusters on TCP.

Between the choice and the moment when a process of the test listens there, or listens there again, nobody else may come
to have them. So they are none of those that the kernel gives to whoever connects, of whom tests have thousands.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

LOWEST = 10_000
"""Below it are ports of well-known services."""
_chance = random.SystemRandom()  # tests seed the other one


def free_port() -> int:
    """One that nobody has."""
    return neighbouring_ports(1)


def four_ports() -> int:
    """The first of as many as a coordinator listens at: control, work, layer inputs and weights."""
    return neighbouring_ports(4)


def neighbouring_ports(count: int) -> int:
    """The first of so many that nobody has."""
    lowest, highest = _of_the_kernel()
    able = range(LOWEST, (1 << 16) - count + 1)
    others = [port for port in able if not lowest - count < port <= highest]
    while True:
        first = _chance.choice(others or able)
        try:
            with ExitStack() as stack:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
        except (OSError, OverflowError):
            continue
        return first


def _of_the_kernel() -> tuple[int, int]:
    """The first and the last of those that the kernel gives away by itself."""
    lowest, highest = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return lowest, highest
