"""A cluster without sockets, processes or time: workers that answer, or misbehave, as a test scripts them.

The experts are a sum of integers that a test can do in its head: entry (row, expert) of weight w adds
w * (expert + 1) * (row + 1) to every column of its row, exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scripted_answers import Behaviour, answers_well
from scripted_parts import (
    EXPERTS,
    LAYERS,
    WIDTH,
    Bank,
    Clock,
    LayerForm,
    Layout,
    Rows,
    ScriptedSocket,
    Slots,
    expected_sums,
)

import native
from coordinator.cluster import Cluster
from coordinator.deadlines import CallLimits
from coordinator.dispatch import ATTEND_S, MeshExperts
from coordinator.hello import Terms
from coordinator.members import Members
from coordinator.placement import own_share
from coordinator.planner import Planner
from coordinator.sums import LayerSums
from protocol.messages import (
    ALL_EXPERTS,
    F32,
    I32,
    I64,
    NO_EXPERTS,
    PROTOCOL,
    Assign,
    AssignReady,
    Hello,
    Message,
    OpenWork,
    RunExperts,
    SayHello,
    Welcome,
)
from protocol.stock import Stock

TERMS = Terms(
    session="5e55",
    fingerprint="0123456789abcdef",
    geometry={"layers": LAYERS, "dense_layers": 0, "experts": EXPERTS, "width": WIDTH, "expert_width": 32},
    work="ipc://@work",
)

STOCK = Stock(slot_bytes=(1,) * LAYERS, experts=EXPERTS)

LIMITS = CallLimits(floor_s=0.3, first_s=1.0, hedge_floor_s=10.0)
"""No call is hedged before its deadline."""


IDS = np.array([[0, 1, 2], [3, 1, 6], [7, 5, 4]], np.int32)
WEIGHTS = np.array([[0.5, 0.25, 0.25], [0.75, 0.125, 0.125], [0.5, 0.375, 0.125]], np.float32)


class Worker:
    """A member that answers RunExperts by its behaviour; `later` holds what a test makes it say afterwards."""

    _lives = itertools.count()

    def __init__(self, mesh: ScriptedMesh, name: str, room: int = -1) -> None:
        self.name = name
        self.room = room
        self.incarnation = str(next(self._lives))
        self.behaviour: Behaviour = answers_well
        self.work: list[RunExperts] = []
        self.token = ""
        self._mesh = mesh
        self.control = f"{name}-{self.incarnation}-control".encode()
        self.peer = f"{name}-{self.incarnation}-work".encode()
        mesh.control.peers[self.control] = self._hear_control
        mesh.work.peers[self.peer] = self._hear_work
        self.say_hello()

    def say_hello(self) -> None:
        """Join, or join anew."""
        hello = Hello(
            protocol=PROTOCOL,
            role="worker",
            name=self.name,
            incarnation=self.incarnation,
            pid=1,
            host="box",
            fingerprint=TERMS.fingerprint,
            geometry=dict(self._mesh.terms.geometry),
            isa="scalar",
            threads=1,
            entry_ns=0,
            memory=-1,
            room=self.room,
            pages=self._mesh.pages,
            able=ALL_EXPERTS,
            held=NO_EXPERTS,
        )
        self.say_control(hello)

    def say_control(self, message: Message) -> None:
        """Something arrives on control."""
        self._mesh.control.inbox.append((self.control, message))

    def say(self, *messages: Message) -> None:
        """Something arrives on work."""
        self._mesh.work.inbox.extend((self.peer, message) for message in messages)

    def die(self) -> None:
        """Both connections close."""
        del self._mesh.control.peers[self.control]
        del self._mesh.work.peers[self.peer]

    def told_hello(self) -> bool:
        """Whether it was told to say Hello, on either connection."""
        sent = self._mesh.control.sent + self._mesh.work.sent
        return any(peer in (self.control, self.peer) and isinstance(message, SayHello) for peer, message in sent)

    def _hear_control(self, message: Message) -> None:
        match message:
            case Welcome(token=token):
                self.token = token
                self.say(OpenWork(token=token))
            case Assign(placement=placement, held=held):
                self.say_control(AssignReady(placement=placement, experts=int(held.sum())))

    def _hear_work(self, message: Message) -> None:
        if isinstance(message, RunExperts):
            self.work.append(message)
            self.say(*self.behaviour(message))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Begun:
    """A layer under way."""

    step: int
    sums: LayerSums
    on_device: I64


class ScriptedMesh:
    """A dispatcher with its cluster, sockets, clock, local bank and workers."""

    def __init__(
        self,
        workers: int,
        *,
        quantised: bool = True,
        slots: int = 0,
        room: int = -1,
        pages: str = "",
        limits: CallLimits = LIMITS,
        local: bool = True,
        layers: int = LAYERS,
    ) -> None:
        """`slots` is how many experts the coordinator's device has room for, `room` the same of each worker.

        Workers have `pages` in common; if these are empty, each has its own. There is a `local` bank, or none.
        """
        self.pages = pages
        numbers = itertools.count()
        self.clock = Clock()
        self.control = ScriptedSocket()
        self.work = ScriptedSocket()
        self.bank = Bank()
        self.slots = Slots(self.clock) if slots else None
        stock = replace(STOCK, slot_bytes=(1,) * layers)
        self.terms = replace(TERMS, geometry={**TERMS.geometry, "layers": layers})
        planner, fresh_token = Planner(stock=stock, own=own_share(stock, slots)), lambda: f"token-{next(numbers)}"
        self.members = Members(self.terms, planner, expected=workers, fresh_token=fresh_token)
        self.waits: list[Callable[[], None]] = []
        """What happens during the next waits, one each."""
        self.cluster = Cluster(self.control, self.work, self.members, wait=self._wait, limits=limits, clock=self.clock)
        layout: Any = Layout(width=WIDTH, layers=(LayerForm(quantised),) * layers)
        bank: Any = self.bank if local else None
        own_slots: Any = self.slots
        self.experts = MeshExperts(self.cluster, bank, layout, own_slots, clock=self.clock)
        self.workers = [Worker(self, f"worker-{number}", room) for number in range(workers)]
        self.steps = 0
        self.settle()

    def settle(self) -> None:
        """Let joining and assigning come to an end, and put the placement in force."""
        while self.control.inbox or self.work.inbox:
            self.cluster.attend()
        self.members.assignment.switch()

    def run(self, ids: I32, weights: F32, layer: int = 0) -> I64:
        """One layer of a new step; its sums."""
        try:
            begun = self.begin(ids, weights, layer)
            return self.finish(begun)
        finally:
            self.experts.abandon()

    def begin(self, ids: I32, weights: F32, layer: int = 0) -> Begun:
        """Begin a layer of a new step."""
        sums = LayerSums(host=np.zeros((len(ids), WIDTH), np.int64))
        rows: Any = native.Rows(np.arange(sums.host.size, dtype=np.float32).reshape(sums.host.shape))
        on_device = np.zeros_like(sums.host)
        if self.slots is not None:
            array: Any = on_device
            sums.device = array
            rows = Rows(len(ids), self.slots.diary)
        self.steps += 1
        self.clock.now += 2 * ATTEND_S
        self.experts.begin_layer(self.steps, layer, rows, ids, weights, sums)
        return Begun(step=self.steps, sums=sums, on_device=on_device)

    def finish(self, begun: Begun) -> I64:
        """Finish it; its sums."""
        self.experts.finish_layer(begun.step)
        assert begun.sums.host_used or not begun.sums.host.any()
        return begun.sums.host + begun.on_device

    def _wait(self, timeout_s: float) -> list[ScriptedSocket]:
        if self.waits and timeout_s > 0:
            self.waits.pop(0)()
        ready = [socket for socket in (self.work, self.control) if socket.inbox]
        if not ready:
            self.clock.now += timeout_s
        return ready


def check(mesh: ScriptedMesh, ids: I32 = IDS, weights: F32 = WEIGHTS) -> None:
    """One layer more, with the right sums."""
    np.testing.assert_array_equal(mesh.run(ids, weights), expected_sums(ids, weights))
