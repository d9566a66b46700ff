"""The sockets by which one process tells something to everybody who wants to hear it."""

from __future__ import annotations

import logging

import zmq

from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError, ProtocolError
from protocol.keys import AllowList, DialKeys, ListenKeys
from protocol.messages import Message
from protocol.wire.base import MAX_SKIPPED, NOW, SMALL_FRAME_BYTES, Socket, readable

log = logging.getLogger(__name__)

PUBLISH_QUEUE = 4
"""Messages that may wait for one subscriber: what it has not read by then is old."""
SEEK_MS, SEEK_MOST_MS = 100, 1000
"""As of RECONNECT_MS, for who subscribes: nobody waits for it."""

_REFUSE_IF_FULL = int(zmq.XPUB_NODROP)
_ALL, _NOTHING = b"\x01", b"\x00"
"""What a subscriber to everything says when it comes, and libzmq when the last one has gone."""


class Publisher(Socket):
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
            said, more = self._socket.recv(NOW), self._more()
            if more or said not in (_ALL, _NOTHING):
                self._drop(ProtocolError("nothing but subscriptions is expected here"))
            else:
                self._wanted = said == _ALL
        return self._wanted

    def _keep_out(self, allowed: AllowList) -> bool:
        """Judge who wants to come in, and hang up on all if a key was taken back: the others come again by themselves.

        False if that cannot be done yet.
        """
        readable([self], 0.0)
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


class Subscriber(Socket):
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
