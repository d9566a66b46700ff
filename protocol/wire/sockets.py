"""The sockets that processes talk through.

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

from protocol.codec import MAX_FRAME_BYTES, MAX_FRAMES, decode, encode
from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError, ProtocolError
from protocol.keys import AllowList, DialKeys, ListenKeys
from protocol.messages import MAX_ROWS, Message
from protocol.step_frames import Frame
from protocol.wire.curve import Gate, dial_with, listen_with
from protocol.wire.refusal import Refusal

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
SEALED_BYTES = 64
"""What encryption adds to a frame at most: 33 bytes, in libzmq 4.3."""

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
                self._socket.send(frame, _NOW if index == last else _NOW_AND_MORE, copy=type(frame) is bytes)
        except zmq.ZMQError as error:
            if error.errno in _UNDELIVERABLE:
                return False
            raise
        return True

    def _receive(self, deadline: float) -> list[Frame] | None:
        """The frames of the next message, or None when the time is over."""
        self._check_thread()
        if not self._is_readable() and not _ready([self], deadline):
            if self._refusal is not None:
                self._refusal.check()
            return None
        return [self._first(), *self._more()]

    def _first(self) -> Frame:
        return self._socket.recv(_NOW)

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


class Bound(_Socket):
    """A listening socket with many peers, each known by the id that ZeroMQ gave its connection."""

    def __init__(
        self,
        endpoint: str,
        *,
        keys: ListenKeys | None = None,
        max_frame_bytes: int = SMALL_FRAME_BYTES,
        heard_frame_bytes: int | None = None,
        queue: int | None = None,
    ) -> None:
        """Listen. ConfigError if the endpoint cannot be had, or is not on this machine and there are no `keys`.

        No peer may send a frame longer than `max_frame_bytes`, MAX_FRAME_BYTES at most, nor does this side; than
        `heard_frame_bytes`, if given, no peer may. With `queue`, so many messages at most wait for a peer, or of one.
        """
        endpoint = check_endpoint(endpoint, keyed=keys is not None)
        # Copied are the peer, and the frame with all that is small.
        super().__init__(
            zmq.ROUTER,
            max_frame_bytes=max_frame_bytes,
            heard_frame_bytes=heard_frame_bytes,
            copied_frames=2,
            keys=keys,
            queue=queue,
        )
        self._allowed = None if keys is None else keys.allowed
        self._sender = ""
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
                self._check_sender()
                return peer, decode(frames[1:])
            except ProtocolError as error:
                self._drop(error, peer)
        return None

    def _first(self) -> Frame:
        """The peer; and whose key he came in with, which libzmq keeps with every frame."""
        if self._allowed is None:
            return self._socket.recv(_NOW)
        frame = self._socket.recv(_NOW, copy=False)
        self._sender = str(frame.get("User-Id"))
        return frame.bytes

    def _check_sender(self) -> None:
        """ProtocolError if his key was taken back: libzmq asks only once, when he connects."""
        if self._allowed is not None and self._allowed.name_of(self._sender) is None:
            raise ProtocolError("its key is not allowed any more")


class Dialled(_Socket):
    """A socket with one peer, which need not be there yet; ZeroMQ connects, and connects again, by itself."""

    def __init__(
        self,
        endpoint: str,
        *,
        keys: DialKeys | None = None,
        patient: bool = False,
        max_frame_bytes: int = SMALL_FRAME_BYTES,
    ) -> None:
        """Dial. ConfigError if the endpoint is not on this machine and there are no `keys`.

        `receive` raises ConfigError when the other side does not let us in; or, unless we are `patient`, breaks off
        every greeting, as it does if it has another key than we expect. See Bound for `max_frame_bytes`.
        """
        endpoint = check_endpoint(endpoint, dial=True, keyed=keys is not None)
        # Copied is the frame with all that is small.
        super().__init__(zmq.DEALER, max_frame_bytes=max_frame_bytes, copied_frames=1, keys=keys)
        self._connect(endpoint, keys, patient)

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

    def __init__(self, endpoint: str, *, keys: ListenKeys | None = None) -> None:
        """Listen. ConfigError if the endpoint cannot be had, or is not on this machine and there are no `keys`."""
        endpoint = check_endpoint(endpoint, keyed=keys is not None)
        super().__init__(zmq.XPUB, max_frame_bytes=SMALL_FRAME_BYTES, copied_frames=1, queue=PUBLISH_QUEUE, keys=keys)
        self.refused = 0
        """Times that somebody fell behind: it had no room for a message, and misses all from then until it reads."""
        self._allowed = None if keys is None else keys.allowed
        self.endpoint = self._begin(endpoint)
        """Where it listens, ports resolved."""

    def _begin(self, endpoint: str) -> str:
        self._wanted = False
        self._taken_back = 0 if self._allowed is None else self._allowed.taken_back
        self._socket.setsockopt(_REFUSE_IF_FULL, 1)
        return self._bind(endpoint)

    def wanted(self) -> bool:
        """Whether anybody subscribes, as far as libzmq has heard. Takes in what subscribers said; never waits."""
        self._check_thread()
        if self._allowed is not None and not self._keep_out(self._allowed):
            return False
        for _ in range(MAX_SKIPPED):
            if not self._is_readable():
                break
            said, more = self._socket.recv(_NOW), self._more()
            if more or said not in (_ALL, _NOTHING):
                self._drop(ProtocolError("nothing but subscriptions is expected here"))
            else:
                self._wanted = said == _ALL
        return self._wanted

    def _keep_out(self, allowed: AllowList) -> bool:
        """Judge who wants to come in, and hang up on all if a key was taken back: the others come again by themselves.

        False if that cannot be done yet.
        """
        _ready([self], 0.0)
        if allowed.taken_back == self._taken_back:
            return True
        self.close()
        self._open()
        try:
            self._begin(self.endpoint)
        except ConfigError as error:
            self._taken_back = -1  # again at the next look
            log.error("%s: nothing is published meanwhile", error)
            return False
        return True

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

    def __init__(self, endpoint: str, *, keys: DialKeys | None = None) -> None:
        """Dial. ConfigError if the endpoint is not on this machine and there are no `keys`.

        `receive` raises ConfigError when the other side does not let us in.
        """
        endpoint = check_endpoint(endpoint, dial=True, keyed=keys is not None)
        super().__init__(zmq.SUB, max_frame_bytes=SMALL_FRAME_BYTES, copied_frames=1, queue=PUBLISH_QUEUE, keys=keys)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.setsockopt(zmq.RECONNECT_IVL, SEEK_MS)  # there need not ever be a publisher
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, SEEK_MOST_MS)
        self._connect(endpoint, keys, patient=True)

    def receive(self, timeout_s: float = 0) -> Message | None:
        """The next well-formed message, or None if there is none in time."""
        return self._receive_message(timeout_s)


def longest_work_frame(width: int) -> int:
    """Bytes of the longest frame that a coordinator sends or takes on work, where rows have `width` columns.

    These are 64-bit sums of as many rows as a window may have. A stranger, too, can have frames of that length only
    queued before anybody looks at who sent them.
    """
    return min(MAX_FRAME_BYTES, max(SMALL_FRAME_BYTES, MAX_ROWS * width * 8))


def wait(
    sockets: Sequence[Bound | Dialled], timeout_s: float, beside: Sequence[Publisher] = ()
) -> list[Bound | Dialled]:
    """Those that have something to receive, as soon as one has; empty when the time is over.

    Whoever wants to come in at one of them, or `beside` at those that nothing is received on, is judged meanwhile.
    """
    return _ready(sockets, time.monotonic() + timeout_s, beside)


A = TypeVar("A", bound=_Socket)


def _ready(sockets: Sequence[A], deadline: float, beside: Sequence[_Socket] = ()) -> list[A]:
    all_of_them: list[_Socket] = [*sockets, *beside]
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
