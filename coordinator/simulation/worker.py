"""A simulated worker: says what a real one says, after as long as that would take. Its answers are zeros."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import native
from coordinator.simulation.network import OneWay, Port
from coordinator.simulation.processor import Processor
from coordinator.simulation.scenario import READING, Kind, Shape, Varied
from coordinator.simulation.sockets import SimulatedSocket
from coordinator.simulation.timeline import Timeline
from protocol.messages import (
    ALL_EXPERTS,
    NO_EXPERTS,
    PROTOCOL,
    U8,
    Assign,
    AssignReady,
    Beat,
    Hello,
    Message,
    OpenWork,
    RunExperts,
    SayHello,
    Stop,
    Stopped,
    Sums,
    Welcome,
)

_lives = itertools.count()
GIVEN_BACK_BYTES_PER_S = 100e9
"""Of a process that ends: how fast its memory is given back (as of EXIT_S)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """What all workers of a cluster have in common."""

    timeline: Timeline
    shape: Shape
    control: SimulatedSocket
    work: SimulatedSocket
    out: Port
    """Of the coordinator's line, towards workers."""
    back: Port
    fingerprint: str
    geometry: dict[str, int]
    beat_s: float
    columns: int
    """That messages really have, whatever the model's width is."""


class SimulatedWorker:
    """One process: it joins, holds what it is told to, answers calls in their order, beats, and has mishaps."""

    def __init__(
        self, world: World, kind: Kind, name: str, host: str, processor: Processor, rng: np.random.Generator
    ) -> None:
        """Not there yet: see `join`. `host` is what the machine of its processor is called."""
        self.name = name
        self._host = host
        self._world = world
        self._kind = kind
        self._processor = processor
        self._rng = rng
        self._entry_s, self._answer_s = kind.entry_s.of_one(rng), kind.answer_s.of_one(rng)
        whole = kind.round_trip_s.of_one(rng)
        half = Varied(mean=whole.mean / 2, within=whole.within)
        rate = kind.bytes_per_s.of_one(rng)
        self._out = OneWay((world.out, Port(rate, rng)), half, rng)
        self._back = OneWay((world.back, Port(rate, rng)), half, rng)
        self._delay_s = half.mean
        self._frozen_until = self._cut_until = 0.0
        self._ended_at: float | None = None
        self._closed_at = math.inf
        self._life = -1
        self._control = self._work = b""

    # --- life and mishaps -------------------------------------------------------------------------------------

    def join(self, when: float) -> None:
        """Begin a life: connect, and say Hello."""
        self._ended_at, self._closed_at, self._cut_until, self._frozen_until = None, math.inf, when, when
        self._life = next(_lives)
        self._have: U8 | None = None
        self._token, self._incarnation = "", f"{self._life:x}"
        self._calls: deque[RunExperts] = deque()
        self._computing = False
        self._answered = (-1, -1)
        self._connect(when)

    def die(self, when: float) -> None:
        """Killed: it does nothing any more, and its machine closes its connections once its memory is given back."""
        self._ended_at = when
        gone_s = self._kind.exit_s.drawn(self._rng) + self._held_bytes() / GIVEN_BACK_BYTES_PER_S
        self._closed_at = when + gone_s + self._delay_s

    def freeze(self, when: float, seconds: float) -> None:
        """Alive, but it does nothing for so long."""
        self._frozen_until = when + seconds

    def vanish(self, when: float, seconds: float = math.inf) -> None:
        """Nothing passes its network for so long, either way, and nobody is told; what was sent passes then."""
        self._cut_until = when + seconds

    def closed_at(self, now: float) -> bool:
        """See `Peer`: word of its end takes as long as any message."""
        return now >= self._closed_at

    def sent(self, message: Message, when: float, count: int) -> None:
        """See `Peer`."""
        arrival = max(self._out.arrival(when, count), self._cut_until)
        if self._ended_at is None and arrival < math.inf:
            self._later(arrival, lambda at: self._hear(message, at))

    def _held_bytes(self) -> int:
        return 0 if self._have is None else self._world.shape.stock.bytes_of(self._have)

    def _later(self, when: float, happening: Callable[[float], None]) -> None:
        """If this life lasts until then; what comes while it is frozen happens when it is not."""
        life = self._life

        def happen(at: float) -> None:
            if self._life != life or (self._ended_at is not None and at >= self._ended_at):
                return
            if at < self._frozen_until:
                self._world.timeline.at(self._frozen_until, happen)
            else:
                happening(at)

        self._world.timeline.at(when, happen)

    # --- control ----------------------------------------------------------------------------------------------

    def _connect(self, when: float) -> None:
        self._greeting = True
        world, number = self._world, f"{self.name}/{next(_lives)}"
        world.control.peers.pop(self._control, None)  # it hangs up, if it had called before
        world.work.peers.pop(self._work, None)
        self._control, self._work = f"{number}/control".encode(), f"{number}/work".encode()
        world.control.peers[self._control] = world.work.peers[self._work] = self
        self._say(world.control, self._control, self._hello(), when)

    def _hello(self) -> Hello:
        kind, world = self._kind, self._world
        return Hello(
            protocol=PROTOCOL,
            role="worker",
            name=self.name,
            incarnation=self._incarnation,
            pid=1,
            host=self._host,
            fingerprint=world.fingerprint,
            geometry=world.geometry,
            isa="simulated",
            threads=kind.threads,
            entry_ns=max(1, round(self._entry_s.mean * 1e9)),
            memory=-1,
            room=kind.room,
            pages=kind.pages,
            able=ALL_EXPERTS,
            held=NO_EXPERTS,
        )

    def _say(self, socket: SimulatedSocket, peer: bytes, message: Message, when: float) -> None:
        arrival = max(self._back.arrival(when, socket.size(message)), self._cut_until)
        if arrival < math.inf:
            self._world.timeline.at(arrival, lambda at: socket.inbox.append((peer, message)))

    def _hear(self, message: Message, when: float) -> None:
        world = self._world
        match message:
            case Welcome(token=token):
                self._token, self._greeting = token, False
                self._say(world.work, self._work, OpenWork(token=token), when)
                self._beat(when, token)
            case SayHello() if not self._greeting:
                self._connect(when)
            case Assign():
                self._hold(message, when)
            case RunExperts():
                self._calls.append(message)
                self._compute_next(when)
            case Stop():
                self._say(world.control, self._control, Stopped(), when)

    def _beat(self, when: float, token: str) -> None:
        if token != self._token:
            return
        step, layer = self._answered
        beat = Beat(
            token=token,
            step=step,
            layer=layer,
            calls=0,
            entries=0,
            busy_us=0,
            wait_us=0,
            dropped=0,
            resident_bytes=0,
            round_trip_us=int(2e6 * self._delay_s),
            residency=0,
            working_us=0,
            cpu_us=0,
            source="mapped",
            tiers={},
        )
        self._say(self._world.control, self._control, beat, when)
        self._later(when + self._world.beat_s * (0.9 + 0.2 * self._rng.random()), lambda at: self._beat(at, token))

    def _hold(self, assign: Assign, when: float) -> None:
        """Make ready what it did not hold before."""
        fresh = assign.held if self._have is None else assign.held & ~self._have
        self._have = assign.held
        seconds = self._world.shape.stock.bytes_of(fresh) / self._kind.load_bytes_per_s
        ready = AssignReady(placement=assign.placement, experts=int(assign.held.sum()))
        self._later(when + seconds, lambda at: self._say(self._world.control, self._control, ready, at))

    # --- work -------------------------------------------------------------------------------------------------

    def _compute_next(self, when: float) -> None:
        if self._computing or not self._calls:
            return
        self._computing = True
        call = self._calls.popleft()
        seconds = kernel_seconds(call, self._entry_s.drawn(self._rng))
        begin = when + self._answer_s.drawn(self._rng)
        self._later(
            begin,
            lambda at: self._processor.run(
                at, seconds, self._kind.threads, lambda end: self._later(end, lambda now: self._answer(call, at, now))
            ),
        )

    def _answer(self, call: RunExperts, began: float, when: float) -> None:
        self._computing = False
        self._answered = call.step, call.layer
        self._say(self._world.work, self._work, zeros(call, self._world.columns, int((when - began) * 1e6)), when)
        self._compute_next(when)


def kernel_seconds(call: RunExperts, entry_s: float) -> float:
    """In the kernels: an expert's weights are read once for all its rows."""
    entries = len(call.entry_expert)
    distinct = 1 + int(np.count_nonzero(np.diff(call.entry_expert)))
    return entry_s * (READING * distinct + entries) / (READING + 1)


def zeros(call: RunExperts, columns: int, busy_us: int) -> Sums:
    """An answer of the right form."""
    _, single_row, sum_row = native.assign_slots(call.entry_row, call.row)
    return Sums(
        session=call.session,
        step=call.step,
        layer=call.layer,
        attempt=call.attempt,
        single_row=single_row,
        single=np.zeros((len(single_row), columns), np.float32),
        sum_row=sum_row,
        sum48=np.zeros((len(sum_row), columns, 6), np.uint8),
        sum64=np.empty((0, columns), np.int64),
        busy_us=busy_us,
        wait_us=0,
    )
