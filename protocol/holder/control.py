"""The control thread: does what the membership instructs, on a connection of its own, so it never waits for work."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from mmap import PAGESIZE
from typing import Protocol

from protocol.errors import ConfigError
from protocol.holder.answer import Runner
from protocol.holder.exchanging import Exchanging
from protocol.holder.holdings import Holdings, Preparer, prepare
from protocol.holder.membership import AskToDrain, Exchange, Greet, Instruction, Membership, Prepare, SendBeat
from protocol.holder.serve import FLUSH_S, Connection, Desk, Leave, Orders, Progress
from protocol.messages import Beat, Message, Stopped

log = logging.getLogger(__name__)


class Experts(Runner, Preparer, Protocol):
    """What is asked of experts: the compute loop runs them, the control thread makes them ready."""


LOOK_S = 0.1
"""How soon the end of the compute loop is noticed."""
LEAVE_S = 10.0
"""How long the compute loop may take to finish what it has in hand once it is to leave."""


def ignore_desk(desk: Desk) -> None:
    """Nobody but the compute loop wants to know."""


class Control:
    """The control thread of one holder."""

    def __init__(
        self,
        membership: Membership,
        *,
        dial: Callable[[], Connection],
        shape: tuple[int, int],
        bank: Experts,
        orders: Orders,
        progress: Progress,
        joined: Callable[[Desk], None] = ignore_desk,
    ) -> None:
        """`dial` opens a fresh control connection; `shape` is (layers, experts) of the model.

        `joined` hears of every desk, in the control thread.
        """
        self._membership = membership
        self._dial = dial
        self._shape = shape
        self._bank = bank
        self._orders = orders
        self._progress = progress
        self._joined = joined
        self._line: Connection | None = None
        self._malformed = 0
        self._preparation: Iterator[Message | None] = iter(())
        self._exchanging = Exchanging(bank, self._say)
        self._leave_by: float | None = None
        self._finished = threading.Event()
        self._farewell = False
        self._drain_asked = ""
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Begin with Hello."""
        self._thread.start()

    def drain(self, why: str) -> None:
        """Leave once others hold its experts. From any thread, and from a signal handler; say it once."""
        self._drain_asked = why

    def finish(self, *, farewell: bool = True) -> None:
        """The compute loop has ended: close, and wait for that; `farewell` tells the coordinator first."""
        self._farewell = farewell
        self._finished.set()
        self._thread.join(LOOK_S + 2 * FLUSH_S)

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._follow(self._membership.greet(time.monotonic()))
            while not self._finished.is_set():
                self._round()
            if self._farewell and self._membership.joined:
                self._say(Stopped())
        except ConfigError as error:
            self._orders.give(Leave(code=2, reason=str(error)))
        except Exception as error:
            log.debug("the control thread failed", exc_info=True)
            self._orders.give(Leave(code=1, reason=f"{type(error).__name__}: {error}"))
        finally:
            self._close(FLUSH_S)

    def _round(self) -> None:
        """One look at everything; takes LOOK_S at most."""
        message = self._hear(0 if self._prepare_on() or self._exchanging.work() else self._patience())
        now = time.monotonic()
        if self._drain_asked:
            why, self._drain_asked = self._drain_asked, ""
            self._follow(self._membership.drain(why, now))
        if message is not None:
            self._follow(self._membership.hear(message, now))
        self._follow(self._membership.tick(now))
        self._exchanging.expire(self._membership.time)
        self._bank.tend(now)
        if self._leave_by is not None and now >= self._leave_by:
            self._abandon()

    def _prepare_on(self) -> bool:
        """Do the next piece of what is being prepared; False if there is none."""
        for news in self._preparation:
            if news is not None:
                self._say(news)
            return True
        return False

    def _patience(self) -> float:
        return LOOK_S if self._leave_by is not None else max(0.0, min(LOOK_S, self._membership.due_s()))

    def _follow(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Greet():
                    self._close(0)
                    self._preparation = iter(())  # of a membership that is over
                    self._exchanging.begin(Holdings())
                    self._line = self._dial()
                    self._say(instruction.hello)
                case SendBeat():
                    self._say(self._beat(instruction.token))
                case AskToDrain():
                    self._say(instruction.drain)
                case Prepare():
                    self._exchanging.assigned(instruction.assign.placement)
                    self._preparation = prepare(instruction.assign, self._shape, self._bank, instruction.holdings)
                case Exchange():
                    self._exchanging.hear(instruction.asked, self._membership.time)
                case Desk():
                    self._exchanging.begin(instruction.holdings)
                    self._orders.give(instruction)
                    self._joined(instruction)
                case Leave():
                    self._give_leave(instruction)

    def _give_leave(self, leave: Leave) -> None:
        if self._leave_by is None:
            self._leave_by = time.monotonic() + LEAVE_S
            self._orders.give(leave)

    def _beat(self, token: str) -> Beat:
        done = self._progress
        began_at = done.began_at
        malformed = self._malformed + (self._line.dropped if self._line is not None else 0)
        return Beat(
            token=token,
            step=done.step,
            layer=done.layer,
            calls=done.calls,
            entries=done.entries,
            busy_us=done.busy_us,
            wait_us=done.wait_us,
            dropped=malformed + self._membership.dropped + done.misdirected + done.malformed,
            resident_bytes=_resident_bytes(),
            round_trip_us=self._membership.round_trip_us,
            residency=self._exchanging.residency,
            working_us=0 if began_at is None else int((time.perf_counter() - began_at) * 1e6),
            cpu_us=int(time.process_time() * 1e6),
            source=self._bank.source_name,
            tiers=self._bank.counts(),
        )

    def _hear(self, timeout_s: float) -> Message | None:
        return self._line.receive(timeout_s) if self._line is not None else None

    def _say(self, message: Message) -> None:
        if self._line is None or not self._line.send(message):
            log.debug("%s was not sent: too many messages wait", type(message).__name__)

    def _close(self, flush_s: float) -> None:
        if self._line is not None:
            self._malformed += self._line.dropped
            self._line.close(flush_s)
            self._line = None

    def _abandon(self) -> None:
        """The compute loop is stuck in a kernel or a page fault, which nothing can interrupt."""
        done = self._progress
        sys.stderr.write(f"error: the work after step {done.step}, layer {done.layer} took more than {LEAVE_S:g} s\n")
        sys.stderr.flush()
        self._close(0)
        os._exit(1)


def _resident_bytes() -> int:
    """Of this process, shared pages included."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGESIZE
