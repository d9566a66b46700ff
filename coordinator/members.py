"""Who belongs to the mesh: a state machine, events in, instructions out. Who is to hold what is in `assignment.py`.

Nothing here touches a socket or a clock. A membership begins with a Hello that is welcomed and ends when its worker
leaves, falls silent, cannot be reached or says Hello again; each has its own serial number and token, so what an
earlier life of the same worker sends is never taken for the present one's.

Silence is counted in time during which the coordinator listened (`tick`), so a coordinator that was stopped or busy
itself does not give up workers whose beats wait in its socket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from coordinator.assignment import Assignment
from coordinator.config import MAX_ALL_WORKERS
from coordinator.draining import needed, not_there, release, tell_those_who_wait, wait_for
from coordinator.hello import Terms, mismatches, where
from coordinator.member import Claim, FromWorker, Instructions, Lost, Member, State, Tell, to
from coordinator.planner import Planner
from coordinator.refusing import name_taken, refuse, replaced_by
from protocol.messages import (
    AssignFailed,
    AssignProgress,
    AssignReady,
    Beat,
    BeatSeen,
    Drain,
    Hello,
    OpenWork,
    SayHello,
    Stop,
    Stopped,
    Welcome,
)
from protocol.wording import counted

log = logging.getLogger(__name__)

MAX_CLIENTS = 256
MAX_MEMBERS = MAX_ALL_WORKERS
MAX_GONE = 64


class Members:
    """All memberships of one coordinator, and the assignment of experts to those that can hold some."""

    def __init__(
        self,
        terms: Terms,
        planner: Planner,
        *,
        expected: int,
        fresh_token: Callable[[], str],
        settle_s: float | None = None,
        host: str = "",
        local: bool = True,
    ) -> None:
        """`fresh_token` gives each membership a secret of its own; for all else see Assignment."""
        self.terms = terms
        self.gone: dict[str, tuple[Member, str]] = {}
        """By name: the last membership that ended and why, of names that nobody has now."""
        self._stopping = False
        self._fresh_token = fresh_token
        self._serial = 0
        self._members: dict[int, Member] = {}
        self._by_control: dict[bytes, Member] = {}
        self._by_work: dict[bytes, Member] = {}
        self._clients: dict[bytes, str] = {}
        self._claims: dict[str, Claim] = {}
        self._quarantined: dict[str, str] = {}  # by incarnation: why
        self._ticked_at: float | None = None
        self.assignment = Assignment(
            self._members, planner, expected=expected, settle_s=settle_s, host=host, local=local
        )
        """What these members hold, and are to hold."""

    # --- questions --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def get(self, serial: int) -> Member | None:
        """The membership with this serial number, if it is not over."""
        return self._members.get(serial)

    def of_control(self, peer: bytes) -> Member | None:
        """Whose control connection this is."""
        return self._by_control.get(peer)

    def of_work(self, peer: bytes) -> Member | None:
        """Whose work connection this is."""
        return self._by_work.get(peer)

    def is_client(self, peer: bytes) -> bool:
        """Whether this peer was welcomed as a client."""
        return peer in self._clients

    def state(self, member: Member, *, late: bool = False) -> State:
        """Where a membership stands, or how it ended; `late`: an answer of its worker is overdue."""
        if self.get(member.serial) is not member:
            return State.GONE if member.left else State.LOST
        if member.failed:
            return State.FAILED
        if member.draining:
            return State.DRAINING
        if late:
            return State.SUSPECT
        if member.serial in self.assignment.active.members:
            return State.READY
        if not self.assignment.was_told(member):
            return State.HELLO
        return State.LOADING if member.progress[0] else State.ASSIGNED

    # --- events -----------------------------------------------------------------------------------------------

    def hello(self, peer: bytes, hello: Hello) -> Instructions:
        """Welcome or refuse; a name that another worker has is decided once it is known whether that one lives."""
        wrong = mismatches(hello, self.terms)
        if wrong:
            return [refuse(peer, hello, wrong)]
        if self._stopping:
            return [to(peer, Stop())]
        if hello.role == "client":
            return self._welcome_client(peer, hello)
        old, claim = self._named(hello.name), self._claims.get(hello.name)
        if old is None:
            return self._admit(peer, hello)
        if old.hello.incarnation == hello.incarnation:
            return [*self._deny_claim(old), *self._renew(old, peer, hello)]
        if claim is not None and claim.hello.incarnation != hello.incarnation:
            return [refuse(peer, hello, name_taken(claim.hello))]
        if old.silent_s >= self.terms.name_claim_s:
            return [*self._end(old, replaced_by(hello)), *self._admit(peer, hello)]
        waited_s = 0.0 if claim is None else claim.waited_s  # who asks again has waited nevertheless
        self._claims[hello.name] = Claim(peer=peer, hello=hello, waited_s=waited_s)
        return [to(old.control, BeatSeen(session=self.terms.session))]  # shows at once if its connection is closed

    def open_work(self, peer: bytes, message: OpenWork) -> Instructions:
        """The token says whose work connection this is; a stranger is told to say Hello."""
        member = next((one for one in self if one.token == message.token and one.holds), None)
        if member is None:
            return [Tell(channel="work", peer=peer, message=SayHello())]
        if member.work is not None:
            self._by_work.pop(member.work, None)
        first = member.work is None
        member.work = peer
        member.silent_s = 0.0
        self._by_work[peer] = member
        return self.assignment.retarget() if first else []

    def from_worker(self, peer: bytes, message: FromWorker, now: float) -> Instructions:
        """Everything a welcomed worker says on control; a stranger is told to say Hello."""
        member = self._by_control.get(peer)
        if member is None or (isinstance(message, Beat) and message.token != member.token):
            return [to(peer, SayHello())]
        member.silent_s = 0.0
        match message:
            case Beat():
                return self._beat(member, message, now)
            case AssignProgress() | AssignReady() | AssignFailed():
                return self.assignment.heard(member, message)
            case Drain() if message.name == member.name:
                return self._drain(member)
            case Stopped():
                return self._end(member, "was drained" if member.draining else "left of its own will", left=True)
        return []

    def drain(self, peer: bytes, name: str) -> Instructions:
        """A client wants a member to leave once others hold its experts; it is told when that is so."""
        member = self._named(name)
        if member is None:
            return [to(peer, not_there(name, tuple(self), self.gone))]
        wait_for(member, peer)
        return self._drain(member)

    def heard_work(self, member: Member) -> None:
        """A message came on its work connection: it lives."""
        member.silent_s = 0.0

    def unroutable(self, peer: bytes) -> Instructions:
        """Nothing can be sent on a control or work connection: its peer is gone, or reads nothing."""
        self._clients.pop(peer, None)
        member = self._by_control.get(peer) or self._by_work.get(peer)
        if member is None:
            return []
        if member.released:  # its last word may lie in the socket, behind what turned out to be for nobody
            return self._end(member, "was drained", left=True)
        return self._end(member, "its connection is closed or full")

    def quarantine(self, member: Member, reason: str) -> Instructions:
        """Its bits are not ours: no more of it as long as its process lives, whatever that says."""
        member.quarantined = True
        while len(self._quarantined) >= MAX_GONE:
            del self._quarantined[next(iter(self._quarantined))]
        self._quarantined[member.hello.incarnation] = f"quarantined: {reason}"
        return self.assignment.unfit(member, self._quarantined[member.hello.incarnation])

    def tick(self, now: float) -> Instructions:
        """Let listened-to time pass: give up the silent, settle claims to a name, let go who was drained."""
        passed = 0.0 if self._ticked_at is None else min(now - self._ticked_at, self.terms.beat_s)
        self._ticked_at = now
        done = release(self, self.assignment.active) + self.assignment.pass_time(passed)
        for member in self:
            member.silent_s += passed
            if member.silent_s > self.terms.silence_limit_s:
                done += self._end(member, f"silent for {member.silent_s:.1f} s")
        for claim in tuple(self._claims.values()):
            claim.waited_s += passed
            old = self._named(claim.hello.name)
            if old is not None and claim.waited_s >= self.terms.name_claim_s:
                done += self._end(old, replaced_by(claim.hello))
        return done

    def stop(self) -> Instructions:
        """Tell every worker to stop; each ends its membership with Stopped. Nobody is admitted any more."""
        self._stopping = True
        self.assignment.stop()
        return [to(member.control, Stop()) for member in self]

    # --- steps ------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> Member | None:
        return next((member for member in self if member.name == name), None)

    def _drain(self, member: Member) -> Instructions:
        if member.draining:
            return []
        if missed := self.assignment.missed_without(member):
            clients, member.drained_for = member.drained_for, []
            return [to(client, needed(member, missed)) for client in clients]
        member.draining = True
        log.info("%s %s is to leave once others hold its experts", member.hello.role, member.name)
        return self.assignment.retarget()

    def _welcome_client(self, peer: bytes, hello: Hello) -> Instructions:
        self._clients.pop(peer, None)
        while len(self._clients) >= MAX_CLIENTS:
            del self._clients[next(iter(self._clients))]
        self._clients[peer] = hello.name
        return [to(peer, self._welcome(self._fresh_token()))]

    def _welcome(self, token: str) -> Welcome:
        terms = self.terms
        return Welcome(session=terms.session, token=token, work=terms.work, inputs=terms.inputs, beat_s=terms.beat_s)

    def _admit(self, peer: bytes, hello: Hello) -> Instructions:
        if len(self._members) >= MAX_MEMBERS:
            return [refuse(peer, hello, [["workers", f"{MAX_MEMBERS} already", f"{MAX_MEMBERS} at most"]])]
        previous = self._by_control.get(peer)
        done = [] if previous is None else self._end(previous, "says hello as another worker")
        self.gone.pop(hello.name, None)
        member = Member(serial=self._serial, hello=hello, token=self._fresh_token(), control=peer)
        member.failed = self._quarantined.get(hello.incarnation, "")
        member.quarantined = bool(member.failed)
        self._serial += 1
        self._members[member.serial] = member
        self._by_control[peer] = member
        threads = counted(hello.threads, "thread")
        share = f", a share of {counted(int(hello.able.sum()), 'expert')}" if hello.able.size else ""
        share += f", holding {counted(int(hello.held.sum()), 'expert')}" if hello.held.any() else ""
        log.info("%s %s joined: %s, %s, %s%s", hello.role, hello.name, where(hello), hello.isa, threads, share)
        return [*done, to(peer, self._welcome(member.token))]

    def _renew(self, old: Member, peer: bytes, hello: Hello) -> Instructions:
        """The same life of a worker says Hello again: a new membership, that is to leave if the former one was."""
        waiting, old.drained_for = old.drained_for, []
        done = [*self._end(old, "says hello anew"), *self._admit(peer, hello)]
        member = self._by_control.get(peer)
        if member is not None:
            member.draining, member.drained_for = old.draining, waiting
        return done

    def _end(self, member: Member, reason: str, *, left: bool = False) -> Instructions:
        """Forget a membership at once: its experts are local until the next placement is in force.

        `left`: its worker says so itself.
        """
        del self._members[member.serial]
        del self._by_control[member.control]
        if member.work is not None:
            del self._by_work[member.work]
        self.assignment.leave_out(member)
        while len(self.gone) >= MAX_GONE:
            del self.gone[next(iter(self.gone))]
        self.gone[member.name] = (member, reason)
        member.left = left
        log.log(logging.INFO if left else logging.WARNING, "%s %s is gone: %s", member.hello.role, member.name, reason)
        done: Instructions = [Lost(member=member, reason=reason)]
        done += tell_those_who_wait(member, reason)
        claim = self._claims.pop(member.name, None)
        if claim is not None:
            done += self._admit(claim.peer, claim.hello)
        return done + self.assignment.retarget()

    def _beat(self, member: Member, beat: Beat, now: float) -> Instructions:
        member.take(beat, now)
        done: Instructions = [to(member.control, BeatSeen(session=self.terms.session))]
        claim = self._claims.get(member.name)
        if claim is not None and claim.waited_s >= self.terms.beat_s / 2:  # an earlier beat may be from before a death
            done += self._deny_claim(member)
        return done

    def _deny_claim(self, holder: Member) -> Instructions:
        claim = self._claims.pop(holder.name, None)
        return [] if claim is None else [refuse(claim.peer, claim.hello, name_taken(holder.hello))]
