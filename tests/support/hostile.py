"""Whoever dials a port to do harm: noise, half a handshake, frames of any announced length, floods, and silence.

A thread of this process for each port, until told to end. What it knows of ZeroMQ's wire is the public ZMTP 3.0.
Tests do so for some seconds; EXPERTMESH_HOSTILE_S says for how many.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading

from garbage import garbage, misdirected

FOR_S = float(os.environ.get("EXPERTMESH_HOSTILE_S", "8"))
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
COMMAND, LAST, MORE, LONG = 4, 0, 1, 2
MOST_OPEN = 60
"""Connections that are kept open at once, of each port."""
SEND_S = 0.5


def frame(body: bytes, flags: int) -> bytes:
    """One frame of ZMTP."""
    if len(body) < 256:
        return struct.pack("BB", flags, len(body)) + body
    return struct.pack(">BQ", flags | LONG, len(body)) + body


HANDSHAKE = GREETING + frame(READY, COMMAND)


def _message(frames: list[bytes]) -> bytes:
    *first, last = frames
    return b"".join(frame(one, MORE) for one in first) + frame(last, LAST)


def _bytes_of(kind: str, chance: random.Random) -> bytes:
    match kind:
        case "noise":
            return chance.randbytes(chance.randrange(1, 5000))
        case "http":
            return b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        case "half a greeting":
            return GREETING[: chance.randrange(1, 64)]
        case "another mechanism":
            return GREETING[:12] + b"PLAIN".ljust(20, b"\0") + bytes(32) + frame(READY, COMMAND)
        case "noise after a greeting":
            return GREETING + chance.randbytes(chance.randrange(1, 5000))
        case "a long frame":  # announced, and never sent
            return HANDSHAKE + struct.pack(">BQ", LONG, chance.choice([2**63, 2**40, 1 << 30, 1 << 26, 1 << 19])) + b"x"
        case "a long command":
            return GREETING + struct.pack(">BQ", COMMAND | LONG, 1 << 40) + READY
        case "frames without end":
            return HANDSHAKE + frame(b"", MORE) * 3000
        case "garbage":
            return HANDSHAKE + b"".join(_message(garbage(chance)) for _ in range(20))
        case "misdirected":
            return HANDSHAKE + b"".join(map(_message, misdirected()))
        case "nothing":
            return b""
    raise AssertionError(kind)


KINDS = (
    "noise",
    "http",
    "half a greeting",
    "another mechanism",
    "noise after a greeting",
    "a long frame",
    "a long command",
    "frames without end",
    "garbage",
    "misdirected",
    "nothing",
)


class Attack:
    """On one port; counts what was done, by kind."""

    def __init__(self, port: int, seed: int) -> None:
        self.done = dict.fromkeys(KINDS, 0)
        self._port = port
        self._chance = random.Random(seed)
        self._open: list[socket.socket] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.wait(0.002):  # so that this machine has time for anything else
            kind = self._chance.choice(KINDS)
            with contextlib.suppress(OSError):
                one = socket.create_connection(("127.0.0.1", self._port), timeout=SEND_S)
                self._open.append(one)
                one.sendall(_bytes_of(kind, self._chance))
                self.done[kind] += 1
            if len(self._open) > MOST_OPEN:
                self._open.pop(self._chance.randrange(len(self._open))).close()

    def __enter__(self) -> Attack:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        for one in self._open:
            one.close()
