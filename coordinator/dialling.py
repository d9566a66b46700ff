"""Where other machines dial the coordinator: what it listens at, seen from there."""

from __future__ import annotations

from collections.abc import Sequence

ANYWHERE = ("0.0.0.0", "[::]", "*")
"""Hosts that mean all addresses of a machine: nobody can dial them, but whoever came from that machine knows one."""
CONNECT = "--connect"


def seen_from_elsewhere(listen: str, address: str | None) -> str:
    """What other machines are told to dial: `address`, if the coordinator listens everywhere and that is known."""
    host, port = _parts(listen)
    return f"tcp://{address}:{port}" if host in ANYWHERE and address is not None else listen


def as_seen_here(endpoint: str, came_from: str) -> str:
    """The same with all addresses of the launcher's machine made the one from which its ssh came here.

    `came_from` is what sshd states as SSH_CONNECTION: that address, and three more words.
    """
    host, port = _parts(endpoint)
    known = came_from.split(" ", 1)[0]
    if host not in ANYWHERE or not known:
        return endpoint
    return f"tcp://[{known}]:{port}" if ":" in known else f"tcp://{known}:{port}"


def with_endpoint(options: Sequence[str], endpoint: str) -> list[str]:
    """Options of a process, of which the one after CONNECT is where it dials."""
    at = list(options).index(CONNECT) + 1
    return [*options[:at], endpoint, *options[at + 1 :]]


def dials(options: Sequence[str]) -> str:
    """That endpoint."""
    return options[list(options).index(CONNECT) + 1]


def address_of(endpoint: str) -> tuple[str, int]:
    """Host, as sockets have it, and port of a tcp endpoint; all addresses are an empty host."""
    host, port = _parts(endpoint)
    return "" if host == "*" else host.strip("[]"), int(port)


def _parts(endpoint: str) -> tuple[str, str]:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host, port
