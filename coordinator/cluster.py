"""The coordinator's two sockets, and the members behind them.

Does what the membership machine instructs, keeps each member's line, and hands on what concerns others: what clients
say to the service, what workers answer to the dispatcher. One thread calls all of it, the step loop's.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from coordinator.asides import Asides, Heard
from coordinator.audit import Difference
from coordinator.deadlines import Call, CallLimits
from coordinator.hello import MAX_NAME
from coordinator.member import FromWorker, Instruction, Instructions, Lost, Member, Tell
from coordinator.members import Members
from coordinator.pace_meter import HereMeter
from coordinator.placement import Placement
from coordinator.plan import Part
from coordinator.seats import Seat, Seats
from coordinator.tallies import Counters
from protocol.errors import ProtocolError
from protocol.messages import (
    AskStatus,
    Beat,
    BeatSeen,
    Cancel,
    Drain,
    Hello,
    Message,
    OpenWork,
    RunExperts,
    SayHello,
    Stop,
    Submit,
    Sums,
    WorkFailed,
)

log = logging.getLogger(__name__)

FromClient = Submit | Cancel | AskStatus
"""What clients ask of the service."""

_ANSWERS = (Sums, WorkFailed)
TICK_S = 0.05
"""How often time passes for the members, and the longest wait."""
PROBE_S = 0.05
"""How often it is tried whether a worker that is waited for can still be reached."""
BURST = 200
"""Messages taken in at one go, at most: a flood on a socket must not hold up the steps."""
MAX_INBOX = 1000
"""What clients said and nobody has heard yet; what exceeds it is dropped."""
REVIEW_S = 2.0
"""How often it is looked whether paces have drifted."""
STRIKES = 8
"""Failed or wrong answers in a row after which a worker gets no more work until it says Hello anew."""


class Socket(Protocol):
    """What is used of a listening socket (protocol.wire.Bound)."""

    dropped: int

    def send(self, peer: bytes, message: Message) -> bool: ...
    def receive(self, timeout_s: float = 0) -> tuple[bytes, Message] | None: ...
    def close(self, flush_s: float = 0) -> None: ...


class Cluster:
    """Members, seats and sockets."""

    def __init__(
        self,
        control: Socket,
        work: Socket,
        members: Members,
        *,
        wait: Callable[[float], Sequence[object]],
        limits: CallLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wait(timeout_s)` gives those of the two sockets that have something to receive, as soon as one has."""
        self.members = members
        self.counters = Counters()
        self.inbox: deque[tuple[bytes, FromClient]] = deque()
        """What clients said, for the service."""
        self.closing = False
        """Somebody wants the end: a client said Stop, or a signal came. No further layer is begun."""
        self.meter = HereMeter()
        """What the coordinator itself takes; the dispatcher and the service fill it."""
        self.busy_since = 0.0
        """When there began to be something to compute: what workers waited before that is no wait."""
        self._control = control
        self._work = work
        self._wait = wait
        self.limits = limits
        """Of every call."""
        self._clock = clock
        self._seats = Seats(limits)
        self._latest = (-1, -1)  # (step, layer) of the newest call, the greatest
        self._waited_at = self._tick_at = self._probe_at = self._review_at = 0.0
        self._asides = Asides()
        self._to_do: deque[Instruction] = deque()
        self._following = False

    def counts(self) -> Counters:
        """What was counted so far; `dropped` includes the malformed messages that the sockets counted."""
        counts = self.counters.copy()
        counts.dropped += self._control.dropped + self._work.dropped
        return counts

    def suspects(self) -> set[int]:
        """Serial numbers of members whose late answer is still to come."""
        return self._seats.suspects()

    # --- taking in --------------------------------------------------------------------------------------------

    def attend(self) -> None:
        """Between steps: take in what has come on both sockets, and let time pass. Never waits."""
        if self.heard(0.0):
            for _ in self.answers():
                raise AssertionError("no answer is awaited between steps")

    def heard(self, at_most_every_s: float) -> bool:
        """Take in what has come on control; True if there is something on work. Never waits."""
        return self._clock() - self._waited_at >= at_most_every_s and self.wait(0)

    def wait(self, timeout_s: float) -> bool:
        """Return when something has come on either socket, or after TICK_S, and let time pass.

        What came on control is taken in; True if there is something on work.
        """
        ready = self._wait(max(0.0, min(timeout_s, TICK_S)))
        if self._control in ready:
            self._hear_control()
        now = self._waited_at = self._clock()
        if now >= self._tick_at:
            self._tick_at = now + TICK_S
            self._seats.pass_time(now)
            self._follow(self.members.tick(now))
        if now >= self._review_at:
            self._review_at = now + REVIEW_S
            assignment = self.members.assignment
            self._follow(assignment.review(self._seats.paces(assignment.active.left_out), self.meter.here()))
        return self._work in ready

    def answers(self) -> Iterator[tuple[Seat, Call, Sums | WorkFailed]]:
        """What has come on work in answer to calls that are still awaited; all else is dealt with. Never waits."""
        for _ in range(BURST):
            heard = self._work.receive(0)
            if heard is None:
                return
            answer = self._judge(*heard)
            if answer is not None:
                yield answer

    def _hear_control(self) -> None:
        """Of several Hellos of one process the last counts: it said the others while nobody listened, and hung up."""
        heard = list(islice(iter(self._control.receive, None), BURST))
        latest = {message.incarnation: peer for peer, message in heard if isinstance(message, Hello)}
        for peer, message in heard:
            repeated = isinstance(message, Hello) and message.incarnation and latest[message.incarnation] != peer
            if not repeated:
                self._take_in(peer, message)

    def _take_in(self, peer: bytes, message: Message) -> None:
        match message:
            case Hello():
                self._follow(self.members.hello(peer, message))
            case Stop() | Submit() | Cancel() if not self.members.is_client(peer):
                self.tell(peer, SayHello())
            case Drain() if self.members.is_client(peer):
                self._follow(self.members.drain(peer, message.name[:MAX_NAME]))
            case Stop():
                log.info("a client asks for the end")
                self.closing = True
            case Submit() | Cancel() | AskStatus() if len(self.inbox) < MAX_INBOX:
                self.inbox.append((peer, message))
            case _ if isinstance(message, FromWorker):
                self._follow(self.members.from_worker(peer, message, self._clock()))
                if isinstance(message, Beat):
                    self._compare_with_line(peer, message)
            case _:
                self._drop(peer, message)

    def _compare_with_line(self, peer: bytes, beat: Beat) -> None:
        seat = self._seats.get(self.members.of_control(peer))
        if seat is not None and seat.line.beat(beat.step, beat.layer, self._clock()):
            log.warning("an answer of worker %s was lost on the way", seat.member.name)

    def _judge(self, peer: bytes, message: Message) -> tuple[Seat, Call, Sums | WorkFailed] | None:
        """Whose answer to which call this is, if it is one that is awaited."""
        if isinstance(message, OpenWork):
            self._follow(self.members.open_work(peer, message))
            return None
        if not isinstance(message, _ANSWERS):
            self._drop(peer, message)
            return None
        member = self.members.of_work(peer)
        if member is None:
            self._work.send(peer, SayHello())
        else:
            self.members.heard_work(member)
            if self._asides.answered(member, message):
                return None
        seat = self._seats.get(member)
        ours = message.session == self.members.terms.session
        call = None if seat is None or not ours else seat.line.find(message.step, message.layer, message.attempt)
        if seat is None or call is None:
            self._count_stray(peer, message, ours)
            return None
        if seat.line.suspect or not call.wanted:
            self.close_call(seat, call, message)
            self.counters.late_replies += 1
            log.info("worker %s answered step %d, layer %d late", seat.member.name, message.step, message.layer)
            return None
        return seat, call, message

    def _count_stray(self, peer: bytes, message: Sums | WorkFailed, ours: bool) -> None:
        if ours and (message.step, message.layer) <= self._latest:
            self.counters.late_replies += 1
        else:
            self._drop(peer, message)

    def _drop(self, peer: bytes, message: Message) -> None:
        self.counters.dropped += 1
        log.debug("dropped %s of peer %s: nobody asked for it", type(message).__name__, peer.hex())

    # --- calls ------------------------------------------------------------------------------------------------

    def placement(self) -> Placement:
        """Who is to compute each expert now: the placement in force, without those that can be given no call."""
        return self._seats.free(self.members.assignment.active)

    def seat(self, serial: int) -> Seat | None:
        """The seat of a member, or None if it is gone."""
        member = self.members.get(serial)
        return None if member is None else self._seats.of(member)

    def call(self, seat: Seat, part: Part, message: RunExperts) -> Call | None:
        """Send a call to a free seat, to be answered as fast as its worker does; None if that turns out to be gone."""
        work = seat.member.work
        assert work is not None  # placements name only members whose work connection is open
        if not self._work.send(work, message):
            self._follow(self.members.unroutable(work))
            return None
        now = seat.called_at = self._clock()
        call = seat.line.begin(message.step, message.layer, part, now)
        call.one_row = len(message.row) == 1
        self._latest = max(self._latest, (message.step, message.layer))
        return call

    @property
    def latest_step(self) -> int:
        """Of the newest call; 0 before the first."""
        return max(0, self._latest[0])

    def ask_aside(self, member: Member, message: RunExperts, heard: Heard) -> None:
        """Send a call of no step, whose answer is told when it comes, if it does. Nobody is waited for."""
        if member.work is None or not self._work.send(member.work, message):
            self._follow(self.members.unroutable(member.control if member.work is None else member.work))
            return
        self._asides.asked(member, message, heard)

    def close_call(self, seat: Seat, call: Call, message: Sums | WorkFailed) -> None:
        """Its answer has come, whatever it is worth."""
        busy_s, now = message.busy_us * 1e-6 if isinstance(message, Sums) else None, self._clock()
        if call.one_row and busy_s is not None and not seat.line.suspect:
            seat.meter.observe(len(call.part), now - call.sent_at, busy_s)
        seat.line.answered(call, now, busy_s)

    def time_left(self, seat: Seat, call: Call) -> float:
        """Seconds until the deadline of a seat's call; 0 if it is past, given up, or answered."""
        return seat.line.time_left(call, self._clock())

    def hedge_left(self, seat: Seat, call: Call) -> float:
        """Seconds until a seat's call is to be hedged, or late if it was already; 0 if it is time."""
        return seat.line.hedge_left(call, self._clock())

    def credit(self, seat: Seat, entries: int, reply: Sums) -> None:
        """Count a good answer."""
        seat.strikes = 0
        tally = self.counters.worker(seat.member.name)
        tally.calls += 1
        tally.entries += entries
        tally.busy_us += reply.busy_us
        tally.wait_us += min(reply.wait_us, max(0, int((self._clock() - self.busy_since) * 1e6)))

    def strike(self, seat: Seat, reason: str) -> None:
        """Count an answer that was no help; after too many in a row the worker is left out of placements."""
        seat.strikes += 1
        say = log.warning if seat.strikes == 1 else log.debug
        say("worker %s was no help: %s", seat.member.name, reason)
        if seat.strikes == STRIKES:
            self._follow(self.members.assignment.unfit(seat.member, f"failed {STRIKES} times in a row, last: {reason}"))

    def overdue(self) -> list[Seat]:
        """Seats with a call that was hedged or given up, whose answer is still to come."""
        return self._seats.overdue()

    def give_up(self, member: Member, reason: str) -> None:
        """It gets nothing more until it says Hello anew."""
        self._follow(self.members.assignment.unfit(member, reason))

    def quarantine(self, member: Member, found: Difference) -> None:
        """Its bits are not ours: nothing more of it is used in this life of its process."""
        log.error("worker %s is quarantined: %s", member.name, found.in_words())
        self._follow(self.members.quarantine(member, found.in_words()))

    def probe(self, seats: Iterable[Seat]) -> None:
        """Now and then: notice workers whose connection is closed, which is how a killed one shows at once."""
        now = self._clock()
        if now >= self._probe_at:
            self._probe_at = now + PROBE_S
            for seat in tuple(seats):
                self.tell(seat.member.control, BeatSeen(session=self.members.terms.session))

    # --- telling ----------------------------------------------------------------------------------------------

    def tell(self, peer: bytes, message: Message) -> bool:
        """Say something on control; False if the peer is gone, which then is known here.

        What cannot be said is dropped: whatever peers have told us must not end this process.
        """
        try:
            if self._control.send(peer, message):
                return True
        except ProtocolError as error:
            log.error("dropped %s: %s", type(message).__name__, error)
            return True
        self._follow(self.members.unroutable(peer))
        return False

    def stop(self, within_s: float) -> None:
        """Tell every worker to stop, and wait until all have said that they leave."""
        deadline = self._clock() + within_s
        self._follow(self.members.stop())
        while len(self.members) and (left := deadline - self._clock()) > 0:
            self.wait(left)
            self.attend()

    def close(self, flush_s: float) -> None:
        """Let what was said leave, and close both sockets."""
        self._control.close(flush_s)
        self._work.close(flush_s)

    def _follow(self, instructions: Instructions) -> None:
        """Do these; what comes of it, as when a peer turns out to be gone, is done after them, never in between.

        Else a worker would be told the latest placement first, and then the one before.
        """
        self._to_do.extend(instructions)
        if self._following:
            return
        self._following = True
        try:
            while self._to_do:
                self._do(self._to_do.popleft())
        finally:
            self._following = False

    def _do(self, one: Instruction) -> None:
        match one:
            case Lost(member=member):
                self._asides.forget(member)
                self._seats.leave(member)
                self.counters.keep({member.name for member in self.members} | self.members.gone.keys())
            case Tell(channel="work", peer=peer, message=message):
                self._work.send(peer, message)
            case Tell(peer=peer, message=message):
                self.tell(peer, message)
