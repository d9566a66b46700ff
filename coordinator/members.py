"""Who belongs to the mesh, and who holds what: a state machine, events in, instructions out.

Nothing here touches a socket or a clock. A membership begins with a Hello that is welcomed and ends when its worker
leaves, falls silent, cannot be reached or says Hello again; each has its own serial number and token, so what an
earlier life of the same worker sends is never taken for the present one's.

Silence is counted in time during which the coordinator listened (`tick`), so a coordinator that was stopped or busy
itself does not give up workers whose beats wait in its socket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from coordinator.config import MAX_ALL_WORKERS
from coordinator.cost import Expected
from coordinator.demand import Demand
from coordinator.draining import needed, not_there, release, tell_those_who_wait, wait_for
from coordinator.drift import Drift
from coordinator.hello import Terms, mismatches, where
from coordinator.known_paces import known_paces
from coordinator.member import Claim, FromWorker, Instructions, Lost, Member, State, Tell, to
from coordinator.pace import Pace
from coordinator.placement import Holder, Placement, place
from coordinator.planner import Here, Planner
from coordinator.refusing import name_taken, refuse, replaced_by
from coordinator.wording import counted
from protocol.messages import (
    I32,
    MAX_REASON,
    NO_RANK,
    U8,
    Assign,
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
from protocol.stock import Stock

log = logging.getLogger(__name__)

MAX_CLIENTS = 256
MAX_MEMBERS = MAX_ALL_WORKERS
MAX_GONE = 64
OUTLOOK_S = 5.0
"""How old a judgement of what a token takes may be: it takes some milliseconds to make one."""


class Members:
    """All memberships of one coordinator, the placement in force and the one being prepared."""

    def __init__(
        self,
        terms: Terms,
        stock: Stock,
        *,
        expected: int,
        fresh_token: Callable[[], str],
        own: U8 | None = None,
        rank: I32 | None = None,
        settle_s: float | None = None,
        demand: Demand | None = None,
        replicas: float = 1.0,
        even: bool = False,
        host: str = "",
        local: bool = True,
    ) -> None:
        """`expected` workers must have joined before the first placement is made; later it follows who is there.

        With `settle_s`, so many seconds of listening will do, whoever has joined by then, or has nothing ready yet; but
        somebody, and ready, if the coordinator computes nothing.
        `local`: the coordinator computes what nobody holds; else nobody may leave whose experts nobody else can hold.

        `own` (layers, experts) is what the coordinator's slots hold of `stock`, now and ever; `rank` (layers, experts)
        is lower for what is expected to be used more, as of `place`; `demand`, `replicas` and `even` are as of Planner.
        `host` is the coordinator's: its own bank and workers of that machine share the cores, so they do not compete.
        """
        self.terms = terms
        self._stock = stock
        own = np.zeros((len(stock.slot_bytes), stock.experts), np.uint8) if own is None else own
        self._rank = rank
        self._planner = Planner(stock=stock, own=own, rank=rank, demand=demand, replicas=replicas, even=even)
        self._drift = Drift()
        self._here = Here()
        self._host = host
        self._outlook: tuple[Placement, float, Expected | None] | None = None
        self.active = place(0, stock, own, ())
        """The placement that plans are made from."""
        self.target: Placement | None = None
        """The placement that members are getting ready for."""
        self.gone: dict[str, tuple[Member, str]] = {}
        """By name: the last membership that ended and why, of names that nobody has now."""
        self._expected = expected
        self._local = local
        self._settle_s = settle_s
        self._settled = False
        self._started = expected == 0
        self._stopping = False
        self._fresh_token = fresh_token
        self._serial = 0
        self._version = 0
        self._told: set[int] = set()  # of the members of `target`, those that were told what to hold
        self._deferred = False  # newcomers are left out of `target`, and follow when it is in force
        self._members: dict[int, Member] = {}
        self._by_control: dict[bytes, Member] = {}
        self._by_work: dict[bytes, Member] = {}
        self._clients: dict[bytes, str] = {}
        self._claims: dict[str, Claim] = {}
        self._quarantined: dict[str, str] = {}  # by incarnation: why
        self._ticked_at: float | None = None

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

    @property
    def ready(self) -> bool:
        """The expected workers have joined, and nobody is getting ready for another placement; or it was settled."""
        return self._started and (self.target is None or (self._settled and self._local))

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
        if member.serial in self.active.members:
            return State.READY
        if member.serial not in self._told:
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
        return self._retarget() if first else []

    def from_worker(self, peer: bytes, message: FromWorker, now: float) -> Instructions:
        """Everything a welcomed worker says on control; a stranger is told to say Hello."""
        member = self._by_control.get(peer)
        if member is None or (isinstance(message, Beat) and message.token != member.token):
            return [to(peer, SayHello())]
        member.silent_s = 0.0
        match message:
            case Beat():
                return self._beat(member, message, now)
            case AssignProgress() if self._concerns_target(member, message.placement):
                member.progress = (message.done, message.total)
            case AssignReady() if self._concerns_target(member, message.placement):
                return self._assign_ready(member, message)
            case AssignFailed() if self._concerns_target(member, message.placement):
                return self.unfit(member, f"cannot hold its experts: {message.reason[:MAX_REASON]}")
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

    def unfit(self, member: Member, reason: str) -> Instructions:
        """It cannot do what it is asked to: it gets nothing more until it says Hello anew."""
        if self.get(member.serial) is not member or member.failed:
            return []
        member.failed = reason
        self._leave_out(member)
        log.warning("%s %s gets no more work: %s", member.hello.role, member.name, reason)
        return self._retarget()

    def quarantine(self, member: Member, reason: str) -> Instructions:
        """Its bits are not ours: no more of it as long as its process lives, whatever that says."""
        member.quarantined = True
        while len(self._quarantined) >= MAX_GONE:
            del self._quarantined[next(iter(self._quarantined))]
        self._quarantined[member.hello.incarnation] = f"quarantined: {reason}"
        return self.unfit(member, self._quarantined[member.hello.incarnation])

    def tick(self, now: float) -> Instructions:
        """Let listened-to time pass: give up the silent, settle claims to a name, let go who was drained."""
        passed = 0.0 if self._ticked_at is None else min(now - self._ticked_at, self.terms.beat_s)
        self._ticked_at = now
        done = release(self, self.active) + self._settle(passed)
        if self._deferred and self.target is None:
            done += self._retarget()
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

    def switch(self) -> bool:
        """Between steps: put the prepared placement in force if all its members are ready for it."""
        target = self.target
        if target is None or any(self._members[serial].ready != target.version for serial in target.members):
            return False
        self.active, self.target = target, None
        self._told.clear()
        nobodys = counted(target.left_over(self._stock), "expert")
        workers = counted(len(target.members), "worker")
        log.info("placement %d in force: %s; %s with the coordinator's processor", target.version, workers, nobodys)
        return True

    def review(self, paces: Mapping[int, Pace | None], here: Here) -> Instructions:
        """Now and then: what is known of paces by now, by serial number. If they have drifted others may get more."""
        beside = any(member.hello.host == self._host for member in self._able())
        self._here = replace(here, local=None) if beside else here
        for member in self:
            member.pace = paces.get(member.serial)
        if not self.ready or not self._drift.seen(self.paces()):
            return []
        self.active = self.active.at_pace(self.active.version, self._holders(self._able()))
        return self._retarget()

    def paces(self) -> dict[int, Pace]:
        """By serial number: how fast those are who can hold something, as far as that is known."""
        return known_paces(self._able())

    def outlook(self) -> Expected | None:
        """What a token is expected to take now, as of some seconds ago at most; None if that cannot be known."""
        old = self._outlook
        if old is None or old[0] is not self.active or (self._ticked_at or 0.0) - old[1] >= OUTLOOK_S:
            self._outlook = self.active, self._ticked_at or 0.0, self._expected_now()
            return self._outlook[2]
        return old[2]

    def _expected_now(self) -> Expected | None:
        holders = self._holders(self._able())
        there = {holder.serial for holder in holders}
        if self._planner.demand is None or not self.paces() or not there.issuperset(self.active.members):
            return None
        return self._planner.outlook(self.active, holders, self._here)

    def stop(self) -> Instructions:
        """Tell every worker to stop; each ends its membership with Stopped. Nobody is admitted any more."""
        self._stopping, self.target = True, None
        return [to(member.control, Stop()) for member in self]

    # --- steps ------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> Member | None:
        return next((member for member in self if member.name == name), None)

    def _concerns_target(self, member: Member, placement: int) -> bool:
        return self.target is not None and placement == self.target.version and member.serial in self._told

    def _settle(self, passed: float) -> Instructions:
        """Begin without those who have not come, if that is meant and it is time."""
        if self._settled or self._settle_s is None:
            return []
        self._settle_s -= passed
        self._settled = self._settle_s <= 0 and (self._local or bool(self._able()))  # else nobody could answer
        if self._started or not self._settled:
            return []
        self._started = True
        log.info("going on without those who have not come back")
        return self._retarget()

    def _drain(self, member: Member) -> Instructions:
        if member.draining:
            return []
        if not self._local and (missed := self._missed_without(member)):
            clients, member.drained_for = member.drained_for, []
            return [to(client, needed(member, missed)) for client in clients]
        member.draining = True
        log.info("%s %s is to leave once others hold its experts", member.hello.role, member.name)
        return self._retarget()

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
        self._leave_out(member)
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
        return done + self._retarget()

    def _leave_out(self, member: Member) -> None:
        """It computes nothing from now on."""
        self._told.discard(member.serial)
        if member.serial in self.active.members:
            self.active = self.active.without(member.serial)

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

    def _assign_ready(self, member: Member, message: AssignReady) -> Instructions:
        assert self.target is not None
        expected = int(self.target.held(member.serial).sum())
        if message.experts != expected:
            return self.unfit(member, f"holds {counted(message.experts, 'expert')}, {expected} were assigned")
        member.ready = message.placement
        return self._tell_the_rest()

    def _retarget(self) -> Instructions:
        """Prepare a placement for exactly those who can hold one now, and stay; newcomers are told first what to hold.

        Nobody who computes is told before all newcomers are ready: if one cannot hold its part, the placement in force
        stays as it is, and nobody else has moved anything.
        """
        able = self._able()
        self._started = self._started or len(able) >= self._expected
        if self._stopping or not self._started:
            return []
        wanted = self._wanted(able)
        self._drift.placed(self.paces())
        if self.target is not None and wanted.is_like(self.target):
            return []
        if wanted.is_like(self.active) and not self._told & set(self.active.members):
            self.target = None
            self._told.clear()
            return []
        self._version += 1
        self.target = wanted
        self._told.clear()
        newcomers = [one for one in wanted.members if one not in self.active.members]
        return self._assign(newcomers) if newcomers else self._tell_the_rest()

    def _able(self) -> list[Member]:
        """Those who can hold something, and stay; by name, so after a restart nobody is asked for anything else."""
        able = [one for one in self if one.work is not None and not one.failed and not one.draining]
        return sorted(able, key=lambda one: one.name)

    def _missed_without(self, member: Member) -> int:
        """How many experts somebody holds now, and nobody could without this member."""
        others = self._place([one for one in self._able() if one is not member])
        return max(0, others.left_over(self._stock) - self.active.left_over(self._stock))

    def _wanted(self, able: Sequence[Member]) -> Placement:
        """With everybody; but if those who compute have to take over from somebody, that waits for no newcomer."""
        settled = [member for member in able if member.serial in self.active.members or self._is_ready(member)]
        self._deferred = False
        if settled and len(settled) < len(able):
            repaired = self._place(settled)
            gain = self.active.left_over(self._stock) - repaired.left_over(self._stock)
            leaving = any(self._members[serial].draining for serial in self.active.members)
            if gain > 0 or (leaving and (self._local or gain == 0)):
                self._deferred = True
                return repaired
        return self._place(able)

    def _is_ready(self, member: Member) -> bool:
        """Whether it is for the placement that is being prepared."""
        return self.target is not None and member.ready == self.target.version

    def _place(self, able: Sequence[Member]) -> Placement:
        return self._planner.place(self._version + 1, self._holders(able), self.active, self._here)

    def _tell_the_rest(self) -> Instructions:
        """Once all that were told are ready, those who are not told yet are."""
        assert self.target is not None
        if any(self._members[serial].ready != self.target.version for serial in self._told):
            return []
        return self._assign(one for one in self.target.members if one not in self._told)

    def _assign(self, serials: Iterable[int]) -> Instructions:
        assert self.target is not None
        done: Instructions = []
        for member in [self._members[serial] for serial in serials]:
            self._make_room(member, self.target)
            member.progress = (0, len(self._stock.slot_bytes))
            self._told.add(member.serial)
            assign = Assign(
                placement=self.target.version,
                in_force=self.active.version,
                held=self.target.held(member.serial),
                rank=NO_RANK if self._rank is None else self._rank,
            )
            done.append(to(member.control, assign))
        return done

    def _holders(self, able: Sequence[Member]) -> list[Holder]:
        paces = self.paces()
        return [_holder(member, paces.get(member.serial)) for member in able]

    def _make_room(self, member: Member, target: Placement) -> None:
        """What a member has no room for beside its next set is left out of the one in force: it is given up first."""
        before, after = self.active.held(member.serial), target.held(member.serial)
        if 0 <= member.hello.room < self._stock.bytes_of(before | after):
            self.active = self.active.giving_up(member.serial, after)


def _holder(member: Member, pace: Pace | None) -> Holder:
    hello = member.hello
    return Holder(
        serial=member.serial,
        room=hello.room,
        able=hello.able if hello.able.size else None,
        pages=hello.pages,
        threads=hello.threads,
        pace=pace,
    )
