"""The sockets that two processes talk through: one listens, the others dial."""

from __future__ import annotations

import time
from collections.abc import Sequence

import zmq

from protocol.codec import MAX_FRAME_BYTES, decode
from protocol.endpoints import check_endpoint
from protocol.errors import ProtocolError
from protocol.keys import DialKeys, ListenKeys
from protocol.messages import MAX_ROWS, Message
from protocol.step_frames import Frame
from protocol.wire.base import MAX_SKIPPED, NOW, SMALL_FRAME_BYTES, Socket, readable
from protocol.wire.publishing import Publisher


class Bound(Socket):
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
            return self._socket.recv(NOW)
        frame = self._socket.recv(NOW, copy=False)
        self._sender = str(frame.get("User-Id"))
        return frame.bytes

    def _check_sender(self) -> None:
        """ProtocolError if his key was taken back: libzmq asks only once, when he connects."""
        if self._allowed is not None and self._allowed.name_of(self._sender) is None:
            raise ProtocolError("its key is not allowed any more")


class Dialled(Socket):
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
    return readable(sockets, time.monotonic() + timeout_s, beside)
