"""A TCP relay that makes this machine far away, and its links bad: `relay.py LISTEN TARGET`, addresses as HOST:PORT.

It obeys lines on stdin, and says `ok` on stdout when it has; `up` is from whoever dials, `down` the other way:

    delay MS      what comes from either side leaves so much later
    mbit N        and no faster than so many megabits a second; 0: as fast as it can
    loss P SEED   with probability P a piece, and so all behind it, comes 200 ms later, as when TCP sends it again;
                  which pieces of a way these are follows from the seed
    hold WAY      nothing passes `up`, `down` or `both` ways, as where packets are dropped; connections stay open,
                  and nobody else gets one
    pass          everything passes again, what was held first
    cut           all connections are reset
    forget END    all connections are closed at the `near` end (who dials) or the `far` one (who listens); the other end
                  keeps its own, open for ever, and hears nothing
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import sys
import threading
import time
from queue import SimpleQueue

PIECE = 1 << 16
SENT_AGAIN_S = 0.2
"""Until what was lost is sent again: the least that Linux waits."""
WAYS = {"up": ("up",), "down": ("down",), "both": ("up", "down")}
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


class Relay:
    """The connections of one relay, and what is done to them."""

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self.delay_s = self.rate = self.loss = 0.0
        self._chances: dict[str, random.Random] = {}
        self._target = target
        self._server = socket.create_server(listen)
        self._open = {way: threading.Event() for way in ("up", "down")}
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._forgotten: list[socket.socket] = []
        self.obey("loss 0 0")
        self.obey("pass")

    def serve(self) -> None:
        """Relay what dials, until killed."""
        while True:
            near, _ = self._server.accept()
            for gate in self._open.values():
                gate.wait()
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.append((near, far))  # from now on it may be cut at any moment
            self._start_direction("up", near, far)
            self._start_direction("down", far, near)

    def obey(self, line: str) -> None:
        """One command."""
        match line.split():
            case ["delay", ms]:
                self.delay_s = float(ms) / 1000
            case ["mbit", number]:
                self.rate = float(number) * 1e6 / 8
            case ["loss", probability, seed]:
                self.loss = float(probability)
                self._chances = {way: random.Random(f"{seed} {way}") for way in self._open}
            case ["hold", way]:
                for name in WAYS[way]:
                    self._open[name].clear()
            case ["pass"]:
                for gate in self._open.values():
                    gate.set()
            case ["cut"]:
                for pair in self._taken():
                    for one in pair:
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                        _shut(one)
                        one.close()
            case ["forget", ("near" | "far") as end]:
                for near, far in self._taken():
                    closed, kept = (near, far) if end == "near" else (far, near)
                    self._forgotten.append(kept)
                    _shut(closed)
            case _:
                raise SystemExit(f"relay: {line!r} is no command")

    def _taken(self) -> list[tuple[socket.socket, socket.socket]]:
        taken, self._pairs = self._pairs, []
        return taken

    def _start_direction(self, way: str, source: socket.socket, to: socket.socket) -> None:
        gate = self._open[way]
        held: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def take() -> None:
            free_at = 0.0
            while True:
                gate.wait()
                try:
                    data = source.recv(PIECE)
                except OSError:
                    data = b""
                free_at = max(free_at, time.monotonic()) + (len(data) / self.rate if self.rate else 0.0)
                free_at += SENT_AGAIN_S if self._chances[way].random() < self.loss else 0.0
                held.put((free_at + self.delay_s, data))
                if not data:
                    return

        def give() -> None:
            while True:
                due, data = held.get()
                time.sleep(max(0.0, due - time.monotonic()))
                gate.wait()
                try:
                    if data:
                        to.sendall(data)
                        continue
                except OSError:
                    pass
                if to not in self._forgotten:
                    _shut(to)
                return

        for work in (take, give):
            threading.Thread(target=work, daemon=True).start()


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(arguments: list[str]) -> None:
    """Relay and obey until stdin ends."""
    listen, target = map(_address, arguments)
    relay = Relay(listen, target)
    threading.Thread(target=relay.serve, daemon=True).start()
    sys.stdout.write("ok\n")
    sys.stdout.flush()
    for line in sys.stdin:
        relay.obey(line)
        sys.stdout.write("ok\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
