"""Keys on a socket (CurveZMQ), and the answer to libzmq's question whether somebody may come in (ZAP)."""

from __future__ import annotations

import logging

import zmq
from zmq.utils import z85

from protocol.keys import AllowList, DialKeys, ListenKeys

log = logging.getLogger(__name__)

MAX_GREETED = 20
"""Handshakes that are judged at one go: a flood of them must not hold up a loop."""
GREETING_MS = 10_000
"""A stranger who has connected and not proved a key by then is hung up on."""
MAX_TOLD = 100
"""Refused handshakes that are logged as warnings, so that a flood of them does not fill a disk."""
_DOMAIN = b"expertmesh"
_VERSION = b"1.0"
_ENDPOINT = "inproc://zeromq.zap.01"
_ALLOWED, _DENIED = (b"200", b"OK"), (b"400", b"this key is not allowed")
_QUESTION_FRAMES = 7


def new_pair() -> tuple[str, str]:
    """A fresh key: (public, secret)."""
    public, secret = zmq.curve_keypair()
    return public.decode("ascii"), secret.decode("ascii")


def public_of(secret: str) -> str:
    """The public half of a key."""
    return zmq.curve_public(secret.encode("ascii")).decode("ascii")


def dial_with(socket: zmq.Socket[bytes], keys: DialKeys) -> None:
    """Before it connects: whoever answers must have the coordinator's key, and is shown ours."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, keys.coordinator.encode("ascii"))
    socket.setsockopt(zmq.CURVE_PUBLICKEY, public_of(keys.secret).encode("ascii"))
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode("ascii"))


def listen_with(socket: zmq.Socket[bytes], keys: ListenKeys) -> None:
    """Before it binds, and behind a Gate: whoever connects must know our key, and have one that is allowed."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode("ascii"))
    socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
    socket.setsockopt(zmq.HANDSHAKE_IVL, GREETING_MS)


class Gate:
    """Says who may come in at the sockets of one context. It has no thread: its owner looks when something is asked.

    libzmq does everything else in its own thread, and asks only about whoever has proved to have the key that he shows.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], allowed: AllowList) -> None:
        """Before any socket of the context listens: libzmq lets everybody in where nobody answers."""
        self.denied = 0
        """Handshakes with a key that is not allowed."""
        self.socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(_ENDPOINT)
        self._allowed = allowed

    def answer(self) -> None:
        """Judge those who wait, if anybody does. Never waits."""
        for _ in range(MAX_GREETED):
            try:
                question = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.socket.send_multipart(self._judged(question), zmq.NOBLOCK)

    def _judged(self, question: list[bytes]) -> list[bytes]:
        """The answer; whoever is let in has his public key as user id, which every message of his carries."""
        request, address, public = question[1], question[3].decode("utf-8", "replace"), ""
        if len(question) == _QUESTION_FRAMES and question[5] == b"CURVE" and len(question[6]) == 32:
            public = z85.encode(question[6]).decode("ascii")
        name = self._allowed.name_of(public)
        if name is None:
            self.denied += 1
            say = log.warning if self.denied <= MAX_TOLD else log.debug
            say("somebody at %s has a key that is not allowed: %s", address, public)
            return [_VERSION, request, *_DENIED, b"", b""]
        log.debug("key %s comes in from %s", name, address)
        return [_VERSION, request, *_ALLOWED, public.encode("ascii"), b""]

    def close(self) -> None:
        """Before its context ends. May be called again."""
        self.socket.close()
