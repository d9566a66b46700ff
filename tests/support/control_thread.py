"""A worker's control thread over queues: a test is its coordinator and its compute loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from message_examples import hello, welcome
from queue_lines import WITHIN_S, QueueLine

from protocol.holder.control import Control
from protocol.holder.membership import Membership
from protocol.holder.serve import Desk, Leave, Orders, Progress
from protocol.messages import (
    NO_RANK,
    Assign,
    AssignReady,
    Hello,
    Message,
    RunExperts,
    Sums,
)

LAYERS, EXPERTS = 3, 4


class Preparer:
    """Makes ready at once, or when it may; or breaks."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.raises: Exception | None = None
        self.discarded: list[tuple[int, int]] = []

    source_name = "mapped"

    def counts(self) -> dict[str, int]:
        return {"file_reads": 3}

    def tend(self, now: float) -> None:
        """Nothing is held."""

    def answer(self, work: RunExperts, wait_us: int) -> Sums:
        raise AssertionError("the compute loop is the test")

    def make_room(self, wanted: Any, in_force: Any, rank: Any) -> None:
        """There is any amount."""

    def prepare(self, layer: int, experts: Any) -> Iterator[None]:
        assert self.may_go_on.wait(WITHIN_S)
        if self.raises is not None:
            raise self.raises
        yield

    def stage(self, layer: int, leaves: int, comes: int) -> Iterator[None]:
        for _ in range(3):
            yield from self.prepare(layer, [comes])

    def discard(self, layer: int, expert: int) -> None:
        self.discarded.append((layer, expert))


class Worker:
    """A control thread and the lines it has dialled; the test is the coordinator and the compute loop."""

    def __init__(self, orphan_s: float = 60.0, dial: Callable[[], Any] | None = None) -> None:
        self.lines: list[QueueLine] = []
        self.dialled = threading.Semaphore(0)
        self._given = 0
        self.orders, self.progress, self.bank = Orders(), Progress(), Preparer()
        self.control = Control(
            Membership(hello(), endpoint="ipc://@c", orphan_s=orphan_s, now=time.monotonic()),
            dial=dial or self._dial,
            shape=(LAYERS, EXPERTS),
            bank=self.bank,
            orders=self.orders,
            progress=self.progress,
        )
        self.control.start()

    def _dial(self) -> QueueLine:
        self.lines.append(QueueLine())
        self.dialled.release()
        return self.lines[-1]

    def line(self) -> QueueLine:
        """The next connection it opens, once Hello was said on it."""
        assert self.dialled.acquire(timeout=WITHIN_S)
        line = self.lines[self._given]
        self._given += 1
        assert isinstance(line.told(), Hello)
        return line

    def join(self, **changes: Any) -> QueueLine:
        """Welcome it with beats of 50 a second; returns the line."""
        line = self.line()
        line.tell(welcome(beat_s=0.02, **changes))
        desk = self.order()
        assert isinstance(desk, Desk)
        self.desk = desk
        return line

    def held(self, placement: int = 1, layer: int = 1) -> list[int]:
        """What the compute loop may be asked for."""
        found = self.desk.holdings.get(placement)
        assert found is not None
        return np.flatnonzero(found[layer]).tolist()

    def assign(self, line: QueueLine, **changes: Any) -> None:
        """Experts 0 and 1 of every layer, as placement 1."""
        held = np.zeros((LAYERS, EXPERTS), np.uint8)
        held[:, :2] = 1
        fields: dict[str, Any] = {"placement": 1, "in_force": 0, "held": held, "rank": NO_RANK}
        line.tell(Assign(**(fields | changes)))
        next_of(line, AssignReady)

    def order(self) -> Desk | Leave | None:
        """What the compute loop is told next."""
        return self.orders.take(WITHIN_S)


def next_of(line: QueueLine, kind: type[Message]) -> Any:
    """The next message of this class, others skipped."""
    while not isinstance(message := line.told(), kind):
        pass
    return message
