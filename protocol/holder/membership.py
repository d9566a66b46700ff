"""How a worker gets into a mesh, stays, and knows that it is over: events in, instructions out; no socket, no clock."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import TypeAlias

from protocol.holder.holdings import Holdings
from protocol.holder.serve import Desk, Leave
from protocol.messages import (
    Assign,
    BeatSeen,
    CommitExchange,
    Drain,
    Hello,
    Message,
    Refused,
    SayHello,
    StageExchange,
    Stop,
    Welcome,
)

log = logging.getLogger(__name__)

HELLO_AGAIN_S = 2.0
"""A Hello that was not answered is said again after this long."""
SILENCE_S = 10.0
"""A coordinator that answered no beat for this long may be another one by now: Hello again."""
DRAIN_S = 20.0
"""How long a worker that wants to leave waits for others to hold its experts."""
DRAIN_SILENCE_S = 1.0
"""A worker that is to leave in order does so at once if the coordinator has said nothing for so long."""
TOLD_TO = "told to by the coordinator"
ROUND_TRIPS = 4
"""How many are remembered, and must have been seen: a coordinator that starts is too busy to answer soon."""
MAX_PAUSE_S = 1.0
"""Of a longer time between two calls the rest does not count: the process did not run, or did something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greet:
    """Give up the control connection, if there is one, and say Hello on a fresh one.

    What was queued on the old one goes with it: it was meant for a coordinator that is gone.
    """

    hello: Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBeat:
    """Say how far the compute loop is."""

    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskToDrain:
    """Tell the coordinator that this worker wants to leave."""

    drain: Drain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepare:
    """Make these experts ready, in place of what is being made ready."""

    assign: Assign
    holdings: Holdings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exchange:
    """Stage an exchange under the set that was assigned last, or commit one."""

    asked: StageExchange | CommitExchange


Instruction: TypeAlias = Greet | SendBeat | AskToDrain | Prepare | Exchange | Desk | Leave
"""What the control thread does; Desk and Leave are handed to the compute loop."""


class Membership:
    """One worker's view of its standing.

    Times given are readings of any one monotonic clock, in seconds. What counts is the time in which the worker
    listened: one that was stopped, or busy, for a minute has not missed its coordinator for a minute.
    """

    def __init__(self, hello: Hello, *, endpoint: str, orphan_s: float, now: float, drain_s: float = DRAIN_S) -> None:
        """`endpoint` is where it dials; `orphan_s`: without any word from there for this long, it is gone for good.

        `drain_s` is how long others may take to take over, when this worker wants to leave.
        """
        self.dropped = 0
        """Messages that a worker does not take on control, or not yet."""
        self._hello = hello
        self._endpoint = endpoint
        self._orphan_s = orphan_s
        self._drain_s = drain_s
        self._why_leave = ""  # once it wants to
        self._drain_at = 0.0  # when it wanted to
        self._welcome: Welcome | None = None
        self._session = ""
        self._holdings = Holdings()
        self._read_at = now
        self._time = 0.0  # listened-to time; the others are readings of it
        self._heard_at = self._seen_at = self._greeted_at = self._beat_at = 0.0
        self._beat_sent_at: float | None = None  # of the clock; until it is answered
        self._round_trips: deque[float] = deque(maxlen=ROUND_TRIPS)

    @property
    def joined(self) -> bool:
        """Whether a coordinator takes this worker for a member, as far as it knows."""
        return self._welcome is not None

    @property
    def round_trip_us(self) -> int:
        """Of a beat and its answer; the least of the last few, as the coordinator is busy at times; -1: too few yet."""
        return round(min(self._round_trips) * 1e6) if len(self._round_trips) == ROUND_TRIPS else -1

    @property
    def time(self) -> float:
        """Seconds that this worker has listened for, until the last call."""
        return self._time

    def greet(self, now: float) -> list[Instruction]:
        """Hello, the first or another one: from now on only what answers it counts."""
        self._welcome = self._beat_sent_at = None
        self._greeted_at = self._listened_until(now)
        return [Greet(hello=replace(self._hello, held=self._holdings.held))]

    def drain(self, why: str, now: float) -> list[Instruction]:
        """It shall leave, once others hold its experts; at once if there is nobody to see to that."""
        time = self._listened_until(now)
        if self._welcome is None or not self._drain_s:
            return [Leave(code=0, reason=why)]
        self._why_leave, self._drain_at = why, time
        self._heard_at = time  # from now on it is to be heard
        return [self._ask_to_drain()]

    def hear(self, message: Message, now: float) -> list[Instruction]:
        """A message came on control."""
        time, welcome = self._listened_until(now), self._welcome
        match message:
            case Welcome():
                self._heard_at = self._seen_at = self._beat_at = time
                return [self._join(message), *([self._ask_to_drain()] if self._why_leave else [])]
            case Refused():
                return [Leave(code=2, reason=f"the coordinator at {self._endpoint} refused: {message.in_words()}")]
            case Stop():
                asked = self._why_leave
                return [Leave(code=0, reason=f"{asked}, and others hold its experts" if asked else TOLD_TO)]
            case SayHello():
                self._heard_at = time
                return [] if welcome is None else self.greet(now)  # else the answer to a Hello is still to come
            case BeatSeen() if welcome is not None:
                self._heard_at = self._seen_at = time
                self._beat_answered(now)
                return [] if message.session == welcome.session else self.greet(now)
            case Assign() if welcome is not None:
                self._heard_at = time
                return [Prepare(assign=message, holdings=self._holdings)]
            case StageExchange() | CommitExchange() if welcome is not None:
                self._heard_at = time
                return [Exchange(asked=message)]
        self.dropped += 1
        log.debug("dropped %s on control", type(message).__name__)
        return []

    def tick(self, now: float) -> list[Instruction]:
        """Time passes; call this after `due_s` at the latest."""
        time = self._listened_until(now)
        if time - self._heard_at >= self._orphan_s:
            reason = f"no word from a coordinator at {self._endpoint} for {self._orphan_s:g} s"
            return [Leave(code=1 if self._session else 2, reason=reason)]
        if self._why_leave and (late := self._cannot_wait(time)):
            return [Leave(code=0, reason=f"{self._why_leave}, and {late}")]
        if self._welcome is None:
            return self.greet(now) if time - self._greeted_at >= HELLO_AGAIN_S else []
        if time - self._seen_at >= SILENCE_S:
            log.warning("no beat was answered for %g s: saying hello again", SILENCE_S)
            return self.greet(now)
        if time < self._beat_at:
            return []
        self._beat_at = time + self._welcome.beat_s
        self._beat_sent_at = now
        return [SendBeat(token=self._welcome.token)]

    def due_s(self) -> float:
        """How long after the last call the next thing is due, if nothing is heard until then; perhaps below 0."""
        if self._welcome is None:
            due_at = self._greeted_at + HELLO_AGAIN_S
        else:
            due_at = min(self._seen_at + SILENCE_S, self._beat_at)
        if self._why_leave:
            due_at = min(due_at, self._heard_at + DRAIN_SILENCE_S, self._drain_at + self._drain_s)
        return min(due_at, self._heard_at + self._orphan_s) - self._time

    def _ask_to_drain(self) -> AskToDrain:
        return AskToDrain(drain=Drain(name=self._hello.name))

    def _cannot_wait(self, time: float) -> str:
        """Why a worker that is to leave does not wait any longer; empty if it does."""
        if time - self._drain_at >= self._drain_s:
            return f"others do not hold its experts within {self._drain_s:g} s"
        if time - self._heard_at >= DRAIN_SILENCE_S:
            return f"the coordinator says nothing for {DRAIN_SILENCE_S:g} s"
        return ""

    def _beat_answered(self, now: float) -> None:
        if self._beat_sent_at is not None:
            self._round_trips.append(now - self._beat_sent_at)
            self._beat_sent_at = None

    def _listened_until(self, now: float) -> float:
        self._time += min(max(0.0, now - self._read_at), MAX_PAUSE_S)
        self._read_at = now
        return self._time

    def _join(self, welcome: Welcome) -> Desk:
        log.info("joined session %s; work comes from %s", welcome.session, welcome.work)
        if welcome.session != self._session:  # placements are numbered by session
            self._holdings = Holdings(self._holdings.held)
        self._session, self._welcome = welcome.session, welcome
        return Desk(
            session=welcome.session,
            token=welcome.token,
            work=welcome.work,
            holdings=self._holdings,
            inputs=welcome.inputs,
        )
