"""What all sockets have in common.

A socket here belongs to the thread that made it and has a context of its own, so that closing it ends all there is of
it. Sending never blocks. Receiving never raises for what a peer sent: that is counted and skipped. Who dials with a
key, or without where one is needed, is told by ConfigError when he is not let in.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

import zmq

from protocol.codec import MAX_FRAMES, decode, encode
from protocol.errors import ConfigError, ProtocolError
from protocol.keys import DialKeys, ListenKeys
from protocol.messages import Message
from protocol.step_frames import Frame
from protocol.wire.curve import Gate, dial_with, listen_with
from protocol.wire.refusal import Refusal

log = logging.getLogger(__name__)

SEND_QUEUE = 1000
"""Messages that may wait to be sent, per peer."""
RECEIVE_QUEUE = 100
"""Messages that may wait to be read, per peer."""
MAX_SKIPPED = 100
"""Malformed messages in a row after which `receive` returns, so that a flood of them cannot hold up a loop."""
SMALL_FRAME_BYTES = 1 << 20
"""Of any frame where no activations travel: a full queue of them still fits in memory."""
RECONNECT_MS, RECONNECT_MOST_MS = 10, 50
"""A dialled socket tries again after so long, then after twice that, up to the second, each time plus a random part
below the first: the other side may start a moment later, or much later."""
SEALED_BYTES = 64
"""What encryption adds to a frame at most: 33 bytes, in libzmq 4.3."""

_UNDELIVERABLE = (zmq.EAGAIN, zmq.EHOSTUNREACH)
# As plain integers: operators of enumerations take longer than libzmq does.
_EVENTS, _MORE = int(zmq.EVENTS), int(zmq.RCVMORE)
_READABLE = int(zmq.POLLIN)
_NOW_AND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
NOW = int(zmq.NOBLOCK)
"""How everything here is received: never waiting."""


class Socket:
    """One end: messages to frames and back, who may use it, and how it ends."""

    def __init__(
        self,
        kind: int,
        *,
        max_frame_bytes: int,
        copied_frames: int,
        keys: DialKeys | ListenKeys | None,
        queue: int | None = None,
        heard_frame_bytes: int | None = None,
    ) -> None:
        self.dropped = 0
        """Malformed messages so far, and those of a key that was taken back."""
        self._kind = kind
        self._max_frame_bytes = max_frame_bytes
        self._heard_frame_bytes = heard_frame_bytes or max_frame_bytes
        self._copied_frames = copied_frames
        self._keys = keys
        self._queue = queue
        self._thread = threading.get_ident()
        self._open()

    def _open(self) -> None:
        """A socket that neither listens nor dials yet, in a context of its own."""
        keys = self._keys
        self._context = zmq.Context()
        self._refusal: Refusal | None = None
        self._gate = Gate(self._context, keys.allowed) if isinstance(keys, ListenKeys) else None
        self._socket: zmq.Socket[bytes] = self._context.socket(self._kind)
        options = {
            zmq.LINGER: 0,
            zmq.SNDHWM: self._queue or SEND_QUEUE,
            zmq.RCVHWM: self._queue or RECEIVE_QUEUE,
            zmq.MAXMSGSIZE: self._heard_frame_bytes + (0 if keys is None else SEALED_BYTES),
            zmq.RECONNECT_IVL: RECONNECT_MS,
            zmq.RECONNECT_IVL_MAX: RECONNECT_MOST_MS,
        }
        if self._kind == zmq.ROUTER:
            options[zmq.ROUTER_MANDATORY] = 1
        for option, value in options.items():
            self._socket.setsockopt(option, value)
        if isinstance(keys, ListenKeys):
            listen_with(self._socket, keys)
        elif keys is not None:
            dial_with(self._socket, keys)

    def close(self, flush_s: float = 0) -> None:
        """Wait at most `flush_s` until what was sent has left this process, then close. May be called again."""
        if self._socket.closed:
            return
        self._check_thread()
        if self._refusal is not None:
            self._refusal.close()
        self._socket.close(linger=_milliseconds(flush_s))
        if self._gate is not None:
            self._gate.close()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise RuntimeError("a socket may only be used by the thread that made it")

    def _encode(self, message: Message) -> list[Frame]:
        """ProtocolError for what the other side would close the connection for."""
        frames = encode(message)
        for frame in frames:
            if len(frame) > self._max_frame_bytes:
                kind, most = type(message).__name__, self._max_frame_bytes
                raise ProtocolError(f"{kind}: a frame of {len(frame)} bytes, {most} at most expected here")
        return frames

    def _send(self, frames: Sequence[Frame]) -> bool:
        self._check_thread()
        last = len(frames) - 1
        try:
            for index, frame in enumerate(frames):
                # Only large arrays come as memoryviews: libzmq's thread reads them later, where they lie.
                self._socket.send(frame, NOW if index == last else _NOW_AND_MORE, copy=type(frame) is bytes)
        except zmq.ZMQError as error:
            if error.errno in _UNDELIVERABLE:
                return False
            raise
        return True

    def _receive(self, deadline: float) -> list[Frame] | None:
        """The frames of the next message, or None when the time is over."""
        self._check_thread()
        if not self._is_readable() and not readable([self], deadline):
            if self._refusal is not None:
                self._refusal.check()
            return None
        return [self._first(), *self._more()]

    def _first(self) -> Frame:
        return self._socket.recv(NOW)

    def _is_readable(self) -> bool:
        """Whether a message is there; to ask is cheaper than to fail at receiving."""
        return bool(int(self._socket.getsockopt(_EVENTS)) & _READABLE)

    def _more(self) -> list[Frame]:
        """The rest of a multipart message, which libzmq has whole; frames beyond any message's number are let go."""
        frames: list[Frame] = []
        while self._socket.getsockopt(_MORE):
            if len(frames) + 1 < self._copied_frames:  # small ones: copying is faster, and makes them aligned
                frames.append(self._socket.recv(NOW))
                continue
            frame = self._socket.recv(NOW, copy=False)
            if len(frames) <= MAX_FRAMES:
                frames.append(frame.buffer)
        return frames

    def _bind(self, endpoint: str) -> str:
        """Listen; where, ports resolved."""
        self._socket.setsockopt(zmq.IPV6, int("[" in endpoint))
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"cannot listen at {endpoint}: {_reason(error)}") from None
        return self._socket.get_string(zmq.LAST_ENDPOINT)

    def _connect(self, endpoint: str, keys: DialKeys | None, patient: bool) -> None:
        self._socket.setsockopt(zmq.IPV6, int("[" in endpoint))
        self._refusal = Refusal(self._socket, endpoint, keys, patient)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"cannot dial {endpoint}: {_reason(error)}") from None

    def _receive_message(self, timeout_s: float) -> Message | None:
        """The next well-formed message of a socket with one peer, or None if there is none in time."""
        deadline = time.monotonic() + timeout_s
        for _ in range(MAX_SKIPPED):
            frames = self._receive(deadline)
            if frames is None:
                break
            try:
                return decode(frames)
            except ProtocolError as error:
                self._drop(error)
        return None

    def _drop(self, error: ProtocolError, peer: bytes = b"") -> None:
        self.dropped += 1
        log.debug("dropped a message%s: %s", f" of peer {peer.hex()}" if peer else "", error)


A = TypeVar("A", bound=Socket)


def readable(sockets: Sequence[A], deadline: float, beside: Sequence[Socket] = ()) -> list[A]:
    """Those that have something to receive, as soon as one has; empty at the `deadline`, a reading of the clock.

    Whoever wants to come in at one of them, or at those `beside`, is judged meanwhile.
    """
    all_of_them: list[Socket] = [*sockets, *beside]
    gates = [one._gate for one in all_of_them if one._gate is not None]
    asked = [*(one._socket for one in sockets), *(gate.socket for gate in gates)]
    items = [(socket, _READABLE) for socket in asked]
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0 and not gates and len(sockets) == 1:
            return []  # its owner has just looked
        ready = [socket for socket, _ in zmq.zmq_poll(items, _milliseconds(left_s))]
        for gate in gates:
            if gate.socket in ready:
                gate.answer()
        found = [one for one in sockets if one._socket in ready]
        if found or not ready or left_s <= 0:
            return found


def _reason(error: zmq.ZMQError) -> str:
    """Without the address, which pyzmq adds to some."""
    return zmq.strerror(error.errno or 0)


def _milliseconds(seconds: float) -> int:
    """Rounded up: a wait of less than one must not become a busy loop."""
    return max(0, math.ceil(seconds * 1000))
