"""Why the other side hangs up during the greeting, as far as libzmq knows: a dialling socket would only stay silent."""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable

import zmq

from protocol.errors import ConfigError
from protocol.keys import DialKeys

HANG_UPS = 3
"""Greetings in a row, each broken off without a reason, after which the other side's key is taken to be another one."""
LEAST_S, MOST_APART_S = 1.0, 5.0
"""They last for at least so long, less than a worker waits until it dials anew; and none is later than that after the
one before: who restarts does it once."""

_WRONG = zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class Refusal:
    """What becomes of the greetings of one dialling socket."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        endpoint: str,
        keys: DialKeys | None,
        patient: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Before it connects. `patient`: whoever hangs up without a reason is waited for."""
        self._dialled = socket
        self._endpoint = endpoint
        self._keys = keys
        self._patient = patient
        self._clock = clock
        self._hung_up_at: deque[float] = deque(maxlen=HANG_UPS)
        self._first_at = 0.0
        name = f"inproc://expertmesh-events-{socket.underlying:x}"
        socket.monitor(name, _EVENTS)
        self._events: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.LINGER, 0)
        self._events.setsockopt(zmq.RCVHWM, 0)  # libzmq's thread must never wait for us
        self._events.connect(name)

    def check(self) -> None:
        """ConfigError if the other side does not let us in, and will not. Never waits."""
        while int(self._events.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            event, value = struct.unpack("=HI", self._events.recv_multipart(zmq.NOBLOCK)[0])
            if reason := self._reason(event, value):
                raise ConfigError(reason)

    def _reason(self, event: int, value: int) -> str | None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._hung_up_at.clear()
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and self._keys is not None:
            return (
                f"whoever listens at {self._endpoint} does not let in the key of {self._keys.origin}: its public half "
                "is not, or no longer, among the files of its folder of allowed keys"
            )
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == _WRONG:
            if self._keys is None:
                return f"whoever listens at {self._endpoint} lets in nobody without a key: --keys FILE is expected"
            return f"whoever listens at {self._endpoint} uses no keys, so none can be proved; {self._keys.origin} found"
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and self._keys is not None and not self._patient:
            return self._hung_up(self._keys)
        return None

    def _hung_up(self, keys: DialKeys) -> str | None:
        now = self._clock()
        if not self._hung_up_at or now - self._hung_up_at[-1] > MOST_APART_S:
            self._hung_up_at.clear()
            self._first_at = now
        self._hung_up_at.append(now)
        if len(self._hung_up_at) < HANG_UPS or now - self._first_at < LEAST_S:
            return None
        return (
            f"whoever listens at {self._endpoint} breaks off every greeting: it is no coordinator, or its key is not "
            f"the one that {keys.origin} names"
        )

    def close(self) -> None:
        """Before the socket is closed."""
        self._dialled.disable_monitor()
        self._events.close()
