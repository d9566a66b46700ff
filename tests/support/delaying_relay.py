"""A TCP relay that makes this machine far away: `delaying_relay.py LISTEN TARGET DELAY_MS MBIT`, ports of 127.0.0.1.

What comes from either side leaves DELAY_MS later, and no faster than MBIT megabits a second (0: as fast as it can).
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from queue import SimpleQueue

PIECE = 1 << 16


def main(arguments: list[str]) -> None:
    """Relay until killed."""
    listen, target, delay_ms, mbit = arguments
    server = socket.create_server(("127.0.0.1", int(listen)))
    while True:
        near, _ = server.accept()
        far = socket.create_connection(("127.0.0.1", int(target)))
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _start_direction(one, other, float(delay_ms) / 1000, float(mbit) * 1e6 / 8)


def _start_direction(source: socket.socket, to: socket.socket, delay_s: float, rate: float) -> None:
    """One way of one connection; `rate` in bytes a second."""
    held: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def take() -> None:
        free_at = 0.0
        while True:
            try:
                data = source.recv(PIECE)
            except OSError:
                data = b""
            free_at = max(free_at, time.monotonic()) + (len(data) / rate if rate else 0.0)
            held.put((free_at + delay_s, data))
            if not data:
                return

    def give() -> None:
        while True:
            due, data = held.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not data:
                    to.shutdown(socket.SHUT_RDWR)
                    return
                to.sendall(data)
            except OSError:
                return

    for work in (take, give):
        threading.Thread(target=work, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
