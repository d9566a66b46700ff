"""Messages over ZeroMQ, which no other module knows; docs/protocol.md tells its traps and how they are settled.

A socket here belongs to the thread that made it and has a context of its own, so that closing it ends all there is of
it. Sending never blocks. Receiving never raises for what a peer sent: that is counted and skipped.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import zmq

from protocol.codec import MAX_FRAME_BYTES, MAX_FRAMES, decode, encode
from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError, ProtocolError
from protocol.messages import MAX_ROWS, Message
from protocol.step_frames import Frame

__all__ = ["Bound", "Dialled", "Publisher", "Subscriber", "check_endpoint", "longest_work_frame", "wait"]

log = logging.getLogger(__name__)

SEND_QUEUE = 1000
"""Messages that may wait to be sent, per peer."""
RECEIVE_QUEUE = 100
"""Messages that may wait to be read, per peer."""
PUBLISH_QUEUE = 4
"""Messages that may wait for one subscriber: what it has not read by then is old."""
MAX_SKIPPED = 100
"""Malformed messages in a row after which `receive` returns, so that a flood of them cannot hold up a loop."""
SMALL_FRAME_BYTES = 1 << 20
"""Of any frame where no activations travel: a full queue of them still fits in memory."""
RECONNECT_MS, RECONNECT_MOST_MS = 10, 50
"""A dialled socket tries again after so long, then after twice that, up to the second, each time plus a random part
below the first: the other side may start a moment later, or much later."""
SEEK_MS, SEEK_MOST_MS = 100, 1000
"""The same for who subscribes: nobody waits for it."""

_UNDELIVERABLE = (zmq.EAGAIN, zmq.EHOSTUNREACH)
# As plain integers: operators of enumerations take longer than libzmq does.
_EVENTS, _MORE = int(zmq.EVENTS), int(zmq.RCVMORE)
_READABLE = int(zmq.POLLIN)
_NOW = int(zmq.NOBLOCK)
_REFUSE_IF_FULL = int(zmq.XPUB_NODROP)
_ALL, _NOTHING = b"\x01", b"\x00"
"""What a subscriber to everything says when it comes, and libzmq when the last one has gone."""
_NOW_AND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)


class _Socket:
    """What both ends have in common."""

    def __init__(
        self, kind: int, endpoint: str, *, max_frame_bytes: int, copied_frames: int, queue: int | None = None
    ) -> None:
        self.dropped = 0
        """Malformed messages so far."""
        self._max_frame_bytes = max_frame_bytes
        self._copied_frames = copied_frames
        self._thread = threading.get_ident()
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(kind)
        options = {
            zmq.LINGER: 0,
            zmq.SNDHWM: queue or SEND_QUEUE,
            zmq.RCVHWM: queue or RECEIVE_QUEUE,
            zmq.MAXMSGSIZE: max_frame_bytes,
            zmq.RECONNECT_IVL: RECONNECT_MS,
            zmq.RECONNECT_IVL_MAX: RECONNECT_MOST_MS,
            zmq.IPV6: int("[" in endpoint),
        }
        if kind == zmq.ROUTER:
            options[zmq.ROUTER_MANDATORY] = 1
        for option, value in options.items():
            self._socket.setsockopt(option, value)

    def close(self, flush_s: float = 0) -> None:
        """Wait at most `flush_s` until what was sent has left this process, then close. May be called again."""
        if self._socket.closed:
            return
        self._check_thread()
        self._socket.close(linger=_milliseconds(flush_s))
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
                self._socket.send(frame, _NOW if index == last else _NOW_AND_MORE, copy=type(frame) is bytes)
        except zmq.ZMQError as error:
            if error.errno in _UNDELIVERABLE:
                return False
            raise
        return True

    def _receive(self, deadline: float) -> list[Frame] | None:
        """The frames of the next message, or None when the time is over."""
        self._check_thread()
        if not self._is_readable():
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not zmq.zmq_poll([(self._socket, _READABLE)], _milliseconds(left_s)):
                return None
        return [self._socket.recv(_NOW), *self._more()]

    def _is_readable(self) -> bool:
        """Whether a message is there; to ask is cheaper than to fail at receiving."""
        return bool(int(self._socket.getsockopt(_EVENTS)) & _READABLE)

    def _more(self) -> list[Frame]:
        """The rest of a multipart message, which libzmq has whole; frames beyond any message's number are let go."""
        frames: list[Frame] = []
        while self._socket.getsockopt(_MORE):
            if len(frames) + 1 < self._copied_frames:  # small ones: copying is faster, and makes them aligned
                frames.append(self._socket.recv(_NOW))
                continue
            frame = self._socket.recv(_NOW, copy=False)
            if len(frames) <= MAX_FRAMES:
                frames.append(frame.buffer)
        return frames

    def _bind(self, endpoint: str) -> str:
        """Listen; where, ports resolved."""
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"cannot listen at {endpoint}: {_reason(error)}") from None
        return self._socket.get_string(zmq.LAST_ENDPOINT)

    def _connect(self, endpoint: str) -> None:
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


class Bound(_Socket):
    """A listening socket with many peers, each known by the id that ZeroMQ gave its connection."""

    def __init__(self, endpoint: str, *, max_frame_bytes: int = SMALL_FRAME_BYTES, queue: int | None = None) -> None:
        """Listen. ConfigError if the endpoint is not on this machine or cannot be had.

        No peer may send a frame longer than `max_frame_bytes`, MAX_FRAME_BYTES at most, nor does this side. With
        `queue`, so many messages at most wait for a peer, or of one.
        """
        endpoint = check_endpoint(endpoint)
        # Copied are the peer, and the frame with all that is small.
        super().__init__(zmq.ROUTER, endpoint, max_frame_bytes=max_frame_bytes, copied_frames=2, queue=queue)
        self.endpoint = self._bind(endpoint)
        """Where it listens, ports resolved."""

    def send(self, peer: bytes, message: Message) -> bool:
        """Queue a message; False if this peer is gone or its queue is full. Large arrays must not change afterwards.

        ProtocolError if it is no message that can be sent here.
        """
        return self._send([peer, *self._encode(message)])

    def receive(self, timeout_s: float = 0) -> tuple[bytes, Message] | None:
        """The next well-formed message and its peer, or None if there is none in time."""
        deadline = time.monotonic() + timeout_s
        for _ in range(MAX_SKIPPED):
            frames = self._receive(deadline)
            if frames is None:
                break
            peer = bytes(frames[0])
            try:
                return peer, decode(frames[1:])
            except ProtocolError as error:
                self._drop(error, peer)
        return None


class Dialled(_Socket):
    """A socket with one peer, which need not be there yet; ZeroMQ connects, and connects again, by itself."""

    def __init__(self, endpoint: str, *, max_frame_bytes: int = SMALL_FRAME_BYTES) -> None:
        """Dial. ConfigError if the endpoint is not on this machine. See Bound for `max_frame_bytes`."""
        endpoint = check_endpoint(endpoint, dial=True)
        # Copied is the frame with all that is small.
        super().__init__(zmq.DEALER, endpoint, max_frame_bytes=max_frame_bytes, copied_frames=1)
        self._connect(endpoint)

    def send(self, message: Message) -> bool:
        """Queue a message; False if the queue is full. Large arrays must not change afterwards.

        ProtocolError if it is no message that can be sent here.
        """
        return self._send(self._encode(message))

    def receive(self, timeout_s: float = 0) -> Message | None:
        """The next well-formed message, or None if there is none in time."""
        return self._receive_message(timeout_s)


class Publisher(_Socket):
    """A listening socket that tells something to whoever subscribes. Nobody is waited for: who is slow misses some."""

    def __init__(self, endpoint: str) -> None:
        """Listen. ConfigError if the endpoint is not on this machine or cannot be had."""
        endpoint = check_endpoint(endpoint)
        super().__init__(zmq.XPUB, endpoint, max_frame_bytes=SMALL_FRAME_BYTES, copied_frames=1, queue=PUBLISH_QUEUE)
        self.refused = 0
        """Times that somebody fell behind: it had no room for a message, and misses all from then until it reads."""
        self._wanted = False
        self._socket.setsockopt(_REFUSE_IF_FULL, 1)
        self.endpoint = self._bind(endpoint)
        """Where it listens, ports resolved."""

    def wanted(self) -> bool:
        """Whether anybody subscribes, as far as libzmq has heard. Takes in what subscribers said; never waits."""
        self._check_thread()
        for _ in range(MAX_SKIPPED):
            if not self._is_readable():
                break
            said, more = self._socket.recv(_NOW), self._more()
            if more or said not in (_ALL, _NOTHING):
                self._drop(ProtocolError("nothing but subscriptions is expected here"))
            else:
                self._wanted = said == _ALL
        return self._wanted

    def send(self, message: Message) -> bool:
        """Queue a message for all who keep up; False if somebody has just fallen behind.

        Call `wanted` before: it hears, too, of what subscribers have read. Large arrays must not change afterwards.

        ProtocolError if it is no message that can be sent here.
        """
        frames = self._encode(message)
        if self._send(frames):
            return True
        self.refused += 1
        self._socket.setsockopt(_REFUSE_IF_FULL, 0)  # those with room get it
        self._send(frames)
        self._socket.setsockopt(_REFUSE_IF_FULL, 1)
        return False


class Subscriber(_Socket):
    """A socket that hears what one publisher tells everybody; it need not be there yet, and may come again."""

    def __init__(self, endpoint: str) -> None:
        """Dial. ConfigError if the endpoint is not on this machine."""
        endpoint = check_endpoint(endpoint, dial=True)
        super().__init__(zmq.SUB, endpoint, max_frame_bytes=SMALL_FRAME_BYTES, copied_frames=1, queue=PUBLISH_QUEUE)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.setsockopt(zmq.RECONNECT_IVL, SEEK_MS)  # there need not ever be a publisher
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, SEEK_MOST_MS)
        self._connect(endpoint)

    def receive(self, timeout_s: float = 0) -> Message | None:
        """The next well-formed message, or None if there is none in time."""
        return self._receive_message(timeout_s)


def longest_work_frame(width: int) -> int:
    """Bytes of the longest frame that a coordinator sends or takes on work, where rows have `width` columns.

    These are 64-bit sums of as many rows as a window may have. A stranger, too, can have frames of that length only
    queued before anybody looks at who sent them.
    """
    return min(MAX_FRAME_BYTES, max(SMALL_FRAME_BYTES, MAX_ROWS * width * 8))


def wait(sockets: Sequence[Bound | Dialled], timeout_s: float) -> list[Bound | Dialled]:
    """Those that have something to receive, as soon as one has; empty when the time is over."""
    ready = zmq.zmq_poll([(one._socket, _READABLE) for one in sockets], _milliseconds(timeout_s))
    found = [socket for socket, _ in ready]
    return [one for one in sockets if one._socket in found]


def _reason(error: zmq.ZMQError) -> str:
    """Without the address, which pyzmq adds to some."""
    return zmq.strerror(error.errno or 0)


def _milliseconds(seconds: float) -> int:
    """Rounded up: a wait of less than one must not become a busy loop."""
    return max(0, math.ceil(seconds * 1000))
