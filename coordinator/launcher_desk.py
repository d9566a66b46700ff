"""Where a running launcher takes wishes of the same account's commands: `expertmesh down` and `expertmesh scale`.

An abstract socket of this machine, named after the cluster's endpoint. The kernel says whose process dials, and only
the launcher's own account and root are heard. Both sides say lines of JSON: one wish, and what becomes of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from coordinator.config import MAX_WORKERS
from protocol.errors import ConfigError

MAX_LINE = 1 << 16
"""Bytes of a wish or of an answer."""
MAX_VISITORS = 16
"""At a time; others wait to be let in."""
CONNECT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeDown:
    """End the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Have so many workers of each of these groups."""

    counts: Mapping[str, int]


Wish = TakeDown | Scale


def to_json(wish: Wish) -> dict[str, Any]:
    """What `wish_of` reads."""
    return {"wish": "down"} if isinstance(wish, TakeDown) else {"wish": "scale", "counts": dict(wish.counts)}


def wish_of(line: bytes) -> Wish:
    """ValueError for what is no wish."""
    try:
        said = json.loads(line)
    except RecursionError:
        said = None
    match said:
        case {"wish": "down"}:
            return TakeDown()
        case {"wish": "scale", "counts": dict(counts)} if counts and all(map(_is_count, counts.values())):
            return Scale(counts=counts)
    raise ValueError("a wish for down or scale is expected")


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_WORKERS


class Visitor:
    """Who has a wish. It may have gone by the time there is an answer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._said = b""
        self.wish: Wish | None = None
        """Once it is known."""

    def listen(self) -> bool:
        """Take in what it says; False if it is gone, or says nothing sensible."""
        try:
            said = self._connection.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._said += said
        if self.wish is None and b"\n" in self._said:
            try:
                self.wish = wish_of(self._said.split(b"\n", 1)[0])
            except ValueError as error:
                self.finish(str(error))
                return False
        return bool(said) and len(self._said) <= MAX_LINE

    def tell(self, line: str) -> None:
        """Something happened on the way."""
        self._send({"line": line})

    def finish(self, error: str = "") -> None:
        """That is all; without an error it is as wished."""
        self._send({"done": True, "error": error})
        self.close()

    def close(self) -> None:
        """Leave it without an answer, if it has none."""
        self._connection.close()

    def _send(self, answer: dict[str, Any]) -> None:
        with suppress(OSError):  # it is gone, or reads nothing
            self._connection.send(json.dumps(answer).encode()[:MAX_LINE] + b"\n")


class LauncherDesk:
    """The launcher's side; a context manager. Nothing here waits."""

    def __init__(self) -> None:
        self._server: socket.socket | None = None
        self._visitors: list[Visitor] = []

    def __enter__(self) -> LauncherDesk:
        return self

    def __exit__(self, *error: object) -> None:
        for visitor in self._visitors:
            visitor.close()
        if self._server is not None:
            self._server.close()

    def open(self, listen: str) -> None:
        """Be there for the cluster that listens there, as its one launcher. ConfigError if that cannot be."""
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._server.bind(_address(listen))
        except OSError as error:
            raise ConfigError(f"no commands for {listen} can be taken here: {error.strerror}") from None
        self._server.listen(MAX_VISITORS)

    def wishes(self) -> Iterator[tuple[Visitor, Wish]]:
        """Those that have come since the last call; each visitor is to be told when it is done (`finish`)."""
        self._let_in()
        for visitor in list(self._visitors):
            there = visitor.listen()
            if visitor.wish is not None:
                self._visitors.remove(visitor)
                yield visitor, visitor.wish
            elif not there:
                self._visitors.remove(visitor)
                visitor.close()

    def _let_in(self) -> None:
        while self._server is not None and len(self._visitors) < MAX_VISITORS:
            try:
                connection, _ = self._server.accept()
            except OSError:  # nobody, or one that is gone again
                return
            connection.setblocking(False)
            if _account(connection) in (0, os.getuid()):
                self._visitors.append(Visitor(connection))
            else:
                connection.close()


def ask_launcher(listen: str, wish: Wish, within_s: float) -> Iterator[str]:
    """What happens on the way to the wish, in lines; ends when it is done.

    ConfigError if no launcher of this account is there for that endpoint, if it ends, if it says nothing for
    `within_s`, or with the reason why it cannot be.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_S)
        try:
            connection.connect(_address(listen))
        except OSError:
            raise ConfigError(f"no launcher is there for {listen}: is this cluster up, started here by `up`?") from None
        if _account(connection) not in (0, os.getuid()):
            raise ConfigError(f"the launcher that is there for {listen} is of another account")
        connection.settimeout(within_s)
        try:
            connection.sendall(json.dumps(to_json(wish)).encode() + b"\n")
            with connection.makefile("rb") as answers:
                while answer := answers.readline(2 * MAX_LINE):
                    said = json.loads(answer)
                    if "line" in said:
                        yield str(said["line"])
                    elif said["error"]:
                        raise ConfigError(str(said["error"]))
                    else:
                        return
        except TimeoutError:
            raise ConfigError(f"the launcher of {listen} has said nothing for {within_s:g} s") from None
        except OSError:
            pass
        raise ConfigError(f"the launcher of {listen} has hung up: is it of this account, and still there?")


def _address(listen: str) -> str:
    mark = hashlib.sha256(listen.replace("//localhost:", "//127.0.0.1:").encode()).hexdigest()[
        :32
    ]  # abstract names are short
    return f"\0expertmesh-launcher-{mark}"


def _account(connection: socket.socket) -> int:
    """The user id of the process at the other end, as the kernel has it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])
