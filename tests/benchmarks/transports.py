"""What a round trip to one and to two processes of this machine costs, by transport; nothing but the transport.

Each round asks every peer once, all before the first answer is taken, with a payload as large as that of a call of 1,
64 or 256 rows (2,304 bytes a row out, 16 KiB back). A peer answers when it has read `--walk-mib` of memory, as its
kernels would read weights: that time, the longest of the peers', is no cost, but what it does to the caches is. `zmq
ipc` and `zmq tcp` carry the payload themselves; `zmq bell` leaves it in shared memory and carries its length; `unix` is
a plain socket, without ZeroMQ and its threads; `spin` asks again and again for up to `--spin-us` before it blocks.
"""

from __future__ import annotations

import argparse
import mmap
import os
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

import numpy as np
import zmq
from benchmark_page import GrowingTable, heading

OUT_BYTES, BACK_BYTES = 2048 + 256, 2048 * 8
LARGEST = 256 * BACK_BYTES + 64
HEAD = struct.Struct("<QQ")
"""Bytes wanted back and bytes to walk; in an answer its size and the nanoseconds walked."""
PATIENCE_MS = 20_000
KINDS = ("zmq ipc", "zmq tcp", "zmq bell", "zmq ipc, spin", "unix", "unix, spin")


class End(Protocol):
    """One end of a line: whole messages, bytes in and out."""

    def send(self, message: bytes) -> None: ...
    def receive(self) -> memoryview: ...
    def close(self) -> None: ...


class ZmqEnd:
    """A PAIR of sockets, which is the least that ZeroMQ does."""

    def __init__(self, endpoint: str, *, bind: bool, spin_us: float = 0.0) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(endpoint) if bind else self._socket.connect(endpoint)
        self.endpoint = self._socket.get_string(zmq.LAST_ENDPOINT) if bind else endpoint
        self._spin_s = spin_us / 1e6

    def send(self, message: bytes) -> None:
        if len(message) < 64 << 10:
            self._socket.send(message)
        else:
            self._socket.send(message, copy=False)

    def receive(self) -> memoryview:
        _spin(lambda: bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN), self._spin_s)
        if not self._socket.poll(PATIENCE_MS):
            raise TimeoutError(self.endpoint)
        return memoryview(self._socket.recv(copy=False).buffer)

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class BellEnd:
    """Payloads in a file of /dev/shm, one half for each direction; ZeroMQ says how long they are."""

    def __init__(self, endpoint: str, memory: Path, *, bind: bool) -> None:
        self._bell = ZmqEnd(endpoint, bind=bind)
        with memory.open("r+b") as file:
            self._view = memoryview(mmap.mmap(file.fileno(), 2 * LARGEST))
        self._out, self._in = (0, LARGEST) if bind else (LARGEST, 0)

    def send(self, message: bytes) -> None:
        self._view[self._out : self._out + len(message)] = message
        self._bell.send(len(message).to_bytes(8, "little"))

    def receive(self) -> memoryview:
        size = int.from_bytes(self._bell.receive(), "little")
        return self._view[self._in : self._in + size]

    def close(self) -> None:
        self._bell.close()


class UnixEnd:
    """A stream of the kernel; each message with its length in front."""

    def __init__(self, stream: socket.socket, spin_us: float = 0.0) -> None:
        stream.settimeout(PATIENCE_MS / 1000)
        self._stream = stream
        self._buffer = memoryview(bytearray(LARGEST))
        self._spin_s = spin_us / 1e6

    def send(self, message: bytes) -> None:
        self._stream.sendall(len(message).to_bytes(8, "little") + message)

    def receive(self) -> memoryview:
        _spin(self._is_readable, self._spin_s)
        have = self._stream.recv_into(self._buffer)
        size = 8 + int.from_bytes(self._buffer[:8], "little")
        while have < size:
            have += self._stream.recv_into(self._buffer[have:])
        return self._buffer[8:size]

    def _is_readable(self) -> bool:
        with suppress(BlockingIOError):
            return bool(self._stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return False

    def close(self) -> None:
        self._stream.close()


def _spin(ready: Callable[[], bool], seconds: float) -> None:
    """Until it is ready or the time is over; other processes may have the processor meanwhile."""
    end = time.perf_counter() + seconds
    while seconds and not ready() and time.perf_counter() < end:
        os.sched_yield()


def serve(end: End) -> None:
    """A peer: answer until there is an empty message."""
    weights = np.ones(64 << 20, np.uint8)  # more than a cache holds
    at = 0
    while message := end.receive():
        wanted, walk = HEAD.unpack_from(message)
        began = time.perf_counter_ns()
        at = 0 if at + walk > len(weights) else at
        weights[at : at + walk].view(np.int64).max(initial=0)
        at += walk
        end.send(HEAD.pack(wanted, time.perf_counter_ns() - began) + bytes(wanted))
    end.close()


def connect(kind: str, endpoint: str, memory: Path, spin_us: float) -> End:
    """A peer's end."""
    match kind:
        case "unix" | "unix, spin":
            stream = socket.socket(socket.AF_UNIX)
            stream.connect("\0" + endpoint)
            return UnixEnd(stream, spin_us if "spin" in kind else 0)
        case "zmq bell":
            return BellEnd(endpoint, memory, bind=False)
    return ZmqEnd(endpoint, bind=False, spin_us=spin_us if "spin" in kind else 0)


class Peer:
    """A process with one end, and the other."""

    def __init__(self, kind: str, folder: Path, spin_us: float) -> None:
        name = f"expertmesh-transport-{secrets.token_hex(8)}"
        memory = folder / name
        with memory.open("wb") as file:
            file.truncate(2 * LARGEST)
        listener: socket.socket | None = None
        end: End | None = None
        if kind.startswith("unix"):
            endpoint = name
            listener = socket.socket(socket.AF_UNIX)
            listener.bind("\0" + name)
            listener.listen()
            listener.settimeout(PATIENCE_MS / 1000)
        elif kind == "zmq bell":
            endpoint = f"ipc://@{name}"
            end = BellEnd(endpoint, memory, bind=True)
        else:
            address = "tcp://127.0.0.1:*" if "tcp" in kind else f"ipc://@{name}"
            end = bound = ZmqEnd(address, bind=True, spin_us=spin_us if "spin" in kind else 0)
            endpoint = bound.endpoint
        command = [sys.executable, "-P", __file__, "--peer", kind, endpoint, str(memory), "--spin-us", str(spin_us)]
        self.process = subprocess.Popen(command)
        if listener is not None:
            end = UnixEnd(listener.accept()[0], spin_us if "spin" in kind else 0)
            listener.close()
        assert end is not None
        self.end: End = end

    def close(self) -> None:
        self.end.send(b"")
        self.process.wait(PATIENCE_MS / 1000)
        self.end.close()


def ask(peers: Sequence[Peer], rows: int, walk: int) -> float:
    """One round, in seconds beside the longest walk."""
    call = HEAD.pack(rows * BACK_BYTES, walk) + bytes(rows * OUT_BYTES)
    began = time.perf_counter_ns()
    for peer in peers:
        peer.end.send(call)
    walked = 0
    for peer in peers:
        answer = peer.end.receive()
        walked = max(walked, HEAD.unpack_from(answer)[1])
        assert len(answer) == HEAD.size + rows * BACK_BYTES
    return (time.perf_counter_ns() - began - walked) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--walk-mib", type=float, default=10.0, help="memory that a peer reads for each answer")
    parser.add_argument("--spin-us", type=float, default=100.0)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--calls", type=int, default=60, help="calls in a row")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.peer:
        kind, endpoint, memory = options.peer
        serve(connect(kind, endpoint, Path(memory), options.spin_us))
        return
    print(heading("Transports on one machine"))
    found: dict[tuple[int, int, str], list[float]] = {}
    walk = int(options.walk_mib * 2**20) // 8 * 8
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, ExitStack() as stack:
        meshes = {kind: [Peer(kind, Path(folder), options.spin_us) for _ in range(2)] for kind in KINDS}
        for peers in meshes.values():
            for peer in peers:
                stack.callback(peer.close)
        for turn in range(options.rounds + 1):
            for count in (1, 2):
                for rows in options.rows:
                    for kind in KINDS if turn % 2 else KINDS[::-1]:
                        times = [ask(meshes[kind][:count], rows, walk) for _ in range(options.calls)]
                        if turn:  # the first round warms up
                            found.setdefault((count, rows, kind), []).extend(times)
    page = GrowingTable(["peers", "rows", *(f"{kind}, P50 (P10 to P90) ms" for kind in KINDS)])
    for count in (1, 2):
        for rows in options.rows:
            cells = []
            for kind in KINDS:
                low, middle, high = np.percentile(found[count, rows, kind], (10, 50, 90)) * 1e3
                cells.append(f"{middle:.3f} ({low:.3f} to {high:.3f})")
            page.add([count, rows, *cells])


if __name__ == "__main__":
    main()
