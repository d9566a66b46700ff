"""Asking a coordinator: what the command line, tests and other programs use. One thread, one connection."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from coordinator.probe import nobody_listens
from coordinator.sampling import Sampling
from protocol.errors import ConfigError, RequestError
from protocol.keys import DialKeys
from protocol.messages import (
    ALL_EXPERTS,
    AS_CONFIGURED,
    NO_EXPERTS,
    PROTOCOL,
    AskStatus,
    Cancel,
    Drain,
    Drained,
    Finished,
    Hello,
    Message,
    Prefilled,
    Refused,
    RequestFailed,
    SayHello,
    Status,
    Stop,
    Submit,
    Token,
    Welcome,
)
from protocol.wire import SMALL_FRAME_BYTES, Dialled

TICK_S = 0.1
"""How often `watch` is called while nothing comes."""
PROBE_S = 2.0
"""Without news of its request for this long, a client asks whether the coordinator still has it, again and again."""
MAX_PROMPT_TOKENS = SMALL_FRAME_BYTES // 4
"""An id takes 4 bytes of a frame."""
SILENCE_S = 120.0
"""Without news or that word for this long it gives up: far above the longest layer, in which nobody is answered."""

FLUSH_S = 0.2
"""Time for last messages to be sent."""
FLUSH_KEYED_S = 2.0
"""The same if we may have to prove who we are first, which a coordinator looks at between two layers."""

Watch = Callable[[], None]
"""Called while waiting; raises if waiting has become pointless (a child has exited, say)."""

LOST = "the coordinator has lost this request; was it started again?"

Event = Prefilled | Token | Finished


class SilentError(ConfigError):
    """Nobody answers."""


def watch_nothing() -> None:
    """Only deadlines end the waiting."""


class Client:
    """A connection to the coordinator at `endpoint`, which need not be there yet."""

    def __init__(
        self,
        endpoint: str,
        *,
        keys: DialKeys | None = None,
        fingerprint: str = "",
        geometry: Mapping[str, int] | None = None,
    ) -> None:
        """`fingerprint` and `geometry` are of the model that the caller reads; without them no claim is made.

        Whatever waits for the coordinator raises ConfigError if that does not let us in with these `keys`, or without.
        """
        self.endpoint = endpoint
        self._hello = Hello(
            protocol=PROTOCOL,
            role="client",
            name=f"client-{os.getpid()}",
            incarnation=secrets.token_hex(8),
            pid=os.getpid(),
            host=socket.gethostname(),
            fingerprint=fingerprint,
            geometry=dict(geometry or {}),
            isa="",
            threads=0,
            entry_ns=0,
            memory=-1,
            room=0,
            pages="",
            able=ALL_EXPERTS,
            held=NO_EXPERTS,
        )
        self._socket = Dialled(endpoint, keys=keys)
        self._flush_s = FLUSH_S if keys is None else FLUSH_KEYED_S
        self._asked = self._told = 0  # AskStatus that were sent, Status that came: in the same order
        self._kept: deque[Message] = deque()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give what was sent a moment to leave, and close."""
        self._socket.close(flush_s=self._flush_s)

    def greet(self, within_s: float, watch: Watch = watch_nothing) -> None:
        """Say Hello and wait for Welcome. ConfigError with every mismatch if refused, or if nobody answers in time."""
        self._send(self._hello)
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            match self._receive(TICK_S):
                case Welcome():
                    return
                case Refused() as refused:
                    raise ConfigError(f"the coordinator at {self.endpoint} refused: {refused.in_words()}")
                case None:
                    watch()
        raise SilentError(f"no coordinator answers at {self.endpoint} within {within_s:g} s")

    def submit(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        stop_ids: Sequence[int],
        sampling: Sampling,
        drafts: int | None = None,
    ) -> str:
        """Ask for a continuation of the prompt; returns the request's name, for `events` and `cancel`.

        A step may have so many `drafts`, None leaves it to the coordinator; the answer is the same.
        RequestError for more ids than a message can hold.
        """
        if len(prompt_ids) > MAX_PROMPT_TOKENS:
            raise RequestError(f"a prompt of {len(prompt_ids)} tokens, {MAX_PROMPT_TOKENS} at most can be sent")
        request = secrets.token_hex(8)
        self._send(
            Submit(
                request=request,
                prompt_ids=np.asarray(prompt_ids, np.int32),
                max_tokens=max_tokens,
                stop_ids=list(stop_ids),
                temperature=sampling.temperature,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                min_p=sampling.min_p,
                repeat_penalty=sampling.repeat_penalty,
                repeat_window=sampling.repeat_window,
                seed=sampling.seed,
                drafts=AS_CONFIGURED if drafts is None else drafts,
            )
        )
        return request

    def events(self, request: str, watch: Watch = watch_nothing) -> Iterator[Event]:
        """What becomes of a request, ending with Finished.

        RequestError if it failed, if the coordinator does not have it (any more), has ended, or says nothing of it for
        SILENCE_S.
        """
        asked_before = self._asked
        heard = probed = time.monotonic()
        while True:
            message = self._kept.popleft() if self._kept else self._receive(TICK_S)
            now = time.monotonic()
            match message:
                case None:
                    watch()
                case Prefilled() | Token() | Finished() if message.request == request:
                    yield message
                    if isinstance(message, Finished):
                        return
                    heard = probed = time.monotonic()
                case RequestFailed() if message.request == request:
                    raise RequestError(message.reason)
                case Status(report=report) if request in report.get("yours", ()):
                    heard = now
                case Status() if self._told > asked_before:  # else it was asked for before the request was made
                    raise RequestError(LOST)
                case SayHello():
                    raise RequestError(LOST)
            if now - heard > SILENCE_S:
                where = f"the coordinator at {self.endpoint}"
                raise RequestError(f"{where} has said nothing of this request for {SILENCE_S:g} s")
            if now - probed > PROBE_S:
                if now - heard > 2 * PROBE_S and nobody_listens(self.endpoint):
                    raise RequestError(f"nothing listens at {self.endpoint} any more, so this request is lost")
                probed = now
                self.ask_status()

    def status(self, within_s: float, watch: Watch = watch_nothing) -> dict[str, Any] | None:
        """The coordinator's report (protocol.messages.Status), or None if it does not answer in time."""
        self.ask_status()
        deadline = time.monotonic() + within_s
        while (left := deadline - time.monotonic()) > 0:
            match self._receive(min(left, TICK_S)):
                case Status(report=report):
                    return report
                case None:
                    watch()
                case other:
                    self._kept.append(other)
        return None

    def ask_status(self) -> None:
        """Ask, without waiting; `poll_status` has the answer."""
        self._asked += 1
        self._send(AskStatus())

    def poll_status(self, within_s: float) -> dict[str, Any] | None:
        """The newest answer to `ask_status` that has come or comes in time, or None."""
        report = None
        message = self._receive(within_s)
        while message is not None:
            if isinstance(message, Status):
                report = message.report
            message = self._receive(0)
        return report

    def drain(self, name: str, within_s: float, watch: Watch = watch_nothing) -> None:
        """Have a member leave once others hold its experts, and wait until it has.

        ConfigError if there is none of that name, if it was lost, or if the coordinator has ended; SilentError if it is
        there still after `within_s`, and leaves later.
        """
        self._send(Drain(name=name))
        probed = time.monotonic()
        deadline = probed + within_s
        while (left := deadline - time.monotonic()) > 0:
            if time.monotonic() - probed > 2 * PROBE_S:
                probed = time.monotonic()
                if nobody_listens(self.endpoint):
                    raise ConfigError(f"nothing listens at {self.endpoint} any more: its coordinator has ended")
            match self._receive(min(left, TICK_S)):
                case Drained(reason="") as drained if drained.name == name:
                    return
                case Drained(reason=reason) as drained if drained.name == name:
                    raise ConfigError(f"{name}: {reason}")
                case SayHello():
                    raise ConfigError(
                        f"the coordinator at {self.endpoint} was started again, and knows of no such wish"
                    )
                case None:
                    watch()
                case Status():
                    pass
                case other:
                    self._kept.append(other)
        raise SilentError(f"{name} has not left within {within_s:g} s; it does once others hold its experts")

    def cancel(self, request: str) -> None:
        """Want no more tokens of a request: Finished will be its last event."""
        self._send(Cancel(request=request))

    def stop(self) -> None:
        """Ask the coordinator to stop its workers, and then itself; whether it does is not waited for."""
        self._send(self._hello)  # it obeys only whom it knows
        self._send(Stop())

    def _send(self, message: Message) -> None:
        if not self._socket.send(message):
            raise RequestError(f"the coordinator at {self.endpoint} takes no more messages")

    def _receive(self, timeout_s: float) -> Message | None:
        message = self._socket.receive(timeout_s)
        self._told += isinstance(message, Status)
        return message
