"""The compute loop: takes desks from the control thread, answers the work that comes on each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from protocol.holder.answer import Runner, answer
from protocol.holder.holdings import Holdings
from protocol.messages import Message, OpenWork, RunExperts, SayHello, Sums, WorkFailed

log = logging.getLogger(__name__)

ORDERS_S = 0.1
"""How soon an order of the control thread is noticed while there is no work."""
OPEN_AGAIN_S = 1.0
"""Without work for this long, OpenWork is said again: the connection may have been replaced unnoticed."""
FLUSH_S = 0.5
"""How long the last words may take to leave."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Desk:
    """A place to work at: where work of one coordinator comes from, and what it may ask."""

    session: str
    token: str
    work: str
    """Endpoint of the work connection."""
    holdings: Holdings
    inputs: str = ""
    """Endpoint where layer inputs are published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The process ends."""

    code: int
    """Its exit code."""
    reason: str


@dataclass(slots=True, kw_only=True, eq=False)
class Progress:
    """What the compute loop has done. Only the compute loop writes, the control thread reads."""

    step: int = -1
    """Of the last RunExperts answered at the present desk, -1 before the first: steps are numbered by session."""
    layer: int = -1
    calls: int = 0
    entries: int = 0
    busy_us: int = 0
    wait_us: int = 0
    misdirected: int = 0
    """Messages that were no work of this desk."""
    malformed: int = 0
    """Messages that were none."""
    began_at: float | None = None
    """When the work in hand came, by `time.perf_counter`; None without any."""


class Connection(Protocol):
    """The work connection: a `wire.Dialled`, or queues in tests."""

    dropped: int
    """Malformed messages so far."""

    def send(self, message: Message) -> bool: ...
    def receive(self, timeout_s: float) -> Message | None: ...
    def close(self, flush_s: float) -> None: ...


class Orders:
    """What the control thread, or a signal, wants the compute loop to do; the latest order counts, Leave is final."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Desk | Leave] = SimpleQueue()

    def give(self, order: Desk | Leave) -> None:
        """From any thread, and from a signal handler."""
        self._queue.put(order)

    def take(self, timeout_s: float = 0.0) -> Desk | Leave | None:
        """The order to follow now, if there is a new one in time."""
        order = self._next(timeout_s)
        while isinstance(order, Desk) and (newer := self._next(0)) is not None:
            order = newer
        return order

    def _next(self, timeout_s: float) -> Desk | Leave | None:
        if timeout_s <= 0 and self._queue.empty():
            return None
        try:
            return self._queue.get(timeout=timeout_s)
        except Empty:
            return None


def one_after_the_other(orders: Orders, sit: Callable[[Desk], Desk | Leave]) -> Leave:
    """Sit at each desk that is ordered, until told to leave; `sit` returns the order that ends it."""
    order: Desk | Leave | None = None
    while not isinstance(order, Leave):
        order = orders.take(ORDERS_S) if order is None else sit(order)
    return order


def compute(orders: Orders, dial: Callable[[str], Connection], bank: Runner, progress: Progress) -> Leave:
    """Serve one desk after the other, each on a connection of its own, until told to leave."""

    def sit(desk: Desk) -> Desk | Leave:
        line, order = dial(desk.work), None
        try:
            order = serve(line, desk, orders, bank, progress)
            return order
        finally:  # for another desk nothing need be flushed: nobody waits for answers of the old one
            line.close(FLUSH_S if isinstance(order, Leave) else 0.0)

    return one_after_the_other(orders, sit)


def serve(line: Connection, desk: Desk, orders: Orders, bank: Runner, progress: Progress) -> Desk | Leave:
    """Answer every RunExperts of this desk exactly once, in order, until there is another order."""
    malformed = progress.malformed
    progress.step = progress.layer = -1
    line.send(OpenWork(token=desk.token))
    waits_since = spoke_at = time.perf_counter()
    while (order := orders.take()) is None:
        message = line.receive(ORDERS_S)
        now = time.perf_counter()
        progress.malformed = malformed + line.dropped
        match message:
            case RunExperts() if message.session == desk.session:
                line.send(_do(message, desk, bank, progress, wait_us=int((now - waits_since) * 1e6)))
                waits_since = spoke_at = time.perf_counter()
                continue
            case None | SayHello():  # a beat gets the same SayHello on control, and the control thread acts on it
                pass
            case _:
                progress.misdirected += 1
                log.debug("dropped %s, which is no work of session %s", type(message).__name__, desk.session)
        if now - spoke_at >= OPEN_AGAIN_S:
            line.send(OpenWork(token=desk.token))
            spoke_at = now
    return order


def _do(work: RunExperts, desk: Desk, bank: Runner, progress: Progress, wait_us: int) -> Sums | WorkFailed:
    progress.began_at = time.perf_counter()
    reply = answer(work, bank, desk.holdings.get(work.placement), wait_us)
    progress.began_at = None
    progress.wait_us += wait_us
    if isinstance(reply, Sums):
        progress.entries += len(work.entry_expert)
        progress.busy_us += reply.busy_us
    progress.step, progress.layer = work.step, work.layer
    # Last: the control thread looks at any moment, and a call that a beat tells of is to be told of whole.
    progress.calls += 1
    return reply
