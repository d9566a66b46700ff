"""Who is to hold what, and from when on: a state machine, events in, instructions out; no socket, no clock.

One placement is in force, from which plans are made, and another one may be prepared: its members are told what to
hold, newcomers first, and when all of them have it ready it is put in force between two steps. Who belongs to the mesh
is decided in `members.py`, which says here what has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from coordinator.cost import Expected
from coordinator.drift import Drift
from coordinator.growing import on_the_way
from coordinator.known_paces import known_paces
from coordinator.member import Instructions, Member, to
from coordinator.pace import Pace
from coordinator.placement import Holder, Placement, place
from coordinator.planner import Here, Planner
from protocol.messages import MAX_REASON, NO_RANK, Assign, AssignFailed, AssignProgress, AssignReady
from protocol.wording import counted

log = logging.getLogger(__name__)

OUTLOOK_S = 5.0
"""How old a judgement of what a token takes may be: it takes some milliseconds to make one."""


class Assignment:
    """The placement in force and the one being prepared, for those members that there are."""

    def __init__(
        self,
        members: Mapping[int, Member],
        planner: Planner,
        *,
        expected: int,
        settle_s: float | None = None,
        host: str = "",
        local: bool = True,
    ) -> None:
        """`members`, by serial number, are those that there are now, whenever that is looked at.

        `expected` workers must have joined before the first placement is made; later it follows who is there. With
        `settle_s`, so many seconds of listening will do, whoever has joined by then, or has nothing ready yet; but
        somebody, and ready, if the coordinator computes nothing.
        `host` is the coordinator's: its own bank and workers of that machine share the cores, so they do not compete.
        `local`: the coordinator computes what nobody holds; else nobody may leave whose experts nobody else can hold.
        """
        self.active = place(0, planner.stock, planner.own, ())
        """The placement that plans are made from."""
        self.target: Placement | None = None
        """The placement that members are getting ready for."""
        self._members = members
        self._planner = planner
        self._stock = planner.stock
        self._expected = expected
        self._settle_s = settle_s
        self._host = host
        self._local = local
        self._drift = Drift()
        self._here = Here()
        self._outlook: tuple[Placement, float, Expected | None] | None = None
        self._time = 0.0  # listened-to
        self._settled = False
        self._started = expected == 0
        self._stopped = False
        self._version = 0
        self._told: set[int] = set()  # of the members of `target`, those that were told what to hold
        self._deferred = False  # `target` is on the way to another one, which follows when it is in force

    # --- questions --------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """The expected workers have joined, and nobody is getting ready for another placement; or it was settled."""
        return self._started and (self.target is None or (self._settled and self._local))

    def was_told(self, member: Member) -> bool:
        """Whether it was told what to hold of the placement that is being prepared."""
        return member.serial in self._told

    def missed_without(self, member: Member) -> int:
        """How many experts would be computed by nobody, that are now, if a member left."""
        if self._local:
            return 0
        others = self._place([one for one in self._able() if one is not member])
        return max(0, others.left_over(self._stock) - self.active.left_over(self._stock))

    def paces(self) -> dict[int, Pace]:
        """By serial number: how fast those are who can hold something, as far as that is known."""
        return known_paces(self._able())

    def outlook(self) -> Expected | None:
        """What a token is expected to take now, as of some seconds ago at most; None if that cannot be known."""
        old = self._outlook
        if old is None or old[0] is not self.active or self._time - old[1] >= OUTLOOK_S:
            self._outlook = self.active, self._time, self._expected_now()
            return self._outlook[2]
        return old[2]

    # --- events -----------------------------------------------------------------------------------------------

    def retarget(self) -> Instructions:
        """Prepare a placement for exactly those who can hold one now, and stay; newcomers are told first what to hold.

        Nobody who computes is told before all newcomers are ready: if one cannot hold its part, the placement in force
        stays as it is, and nobody else has moved anything.
        """
        able = self._able()
        self._started = self._started or len(able) >= self._expected
        if self._stopped or not self._started:
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

    def heard(self, member: Member, report: AssignProgress | AssignReady | AssignFailed) -> Instructions:
        """How far a member is, if that is about the placement being prepared."""
        if self.target is None or report.placement != self.target.version or not self.was_told(member):
            return []
        match report:
            case AssignProgress():
                member.progress = (report.done, report.total)
                return []
            case AssignReady():
                return self._is_ready(member, report.experts, self.target)
            case AssignFailed():
                return self.unfit(member, f"cannot hold its experts: {report.reason[:MAX_REASON]}")

    def unfit(self, member: Member, reason: str) -> Instructions:
        """It cannot do what it is asked to: it gets nothing more until it says Hello anew."""
        if self._members.get(member.serial) is not member or member.failed:
            return []
        member.failed = reason
        self.leave_out(member)
        log.warning("%s %s gets no more work: %s", member.hello.role, member.name, reason)
        return self.retarget()

    def leave_out(self, member: Member) -> None:
        """It computes nothing from now on: its experts are with others who hold them, or local."""
        self._told.discard(member.serial)
        if member.serial in self.active.members:
            self.active = self.active.without(member.serial)

    def pass_time(self, seconds: float) -> Instructions:
        """Begin without those who have not come, if that is meant and it is time; let newcomers follow."""
        self._time += seconds
        done = self._settle(seconds)
        if self._deferred and self.target is None:
            done += self.retarget()
        return done

    def review(self, paces: Mapping[int, Pace | None], here: Here) -> Instructions:
        """Now and then: what is known of paces by now, by serial number. If they have drifted others may get more."""
        beside = any(member.hello.host == self._host for member in self._able())
        self._here = replace(here, local=None) if beside else here
        for member in self._members.values():
            member.pace = paces.get(member.serial)
        if self._planner.even or not self.ready or not self._drift.seen(self.paces()):
            return []
        self.active = self.active.at_pace(self.active.version, self._holders(self._able()))
        return self.retarget()

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

    def stop(self) -> None:
        """Nothing more is prepared."""
        self._stopped, self.target = True, None

    # --- steps ------------------------------------------------------------------------------------------------

    def _able(self) -> list[Member]:
        """Those who can hold something, and stay; by name, so after a restart nobody is asked for anything else."""
        there = self._members.values()
        able = [one for one in there if one.work is not None and not one.failed and not one.draining]
        return sorted(able, key=lambda one: one.name)

    def _wanted(self, able: Sequence[Member]) -> Placement:
        """With everybody; but if those who compute have to take over from somebody, that waits for no newcomer."""
        settled = [member for member in able if member.serial in self.active.members or self._prepared(member)]
        self._deferred = False
        if settled and len(settled) < len(able):
            repaired = self._place(settled)
            gain = self.active.left_over(self._stock) - repaired.left_over(self._stock)
            leaving = any(self._members[serial].draining for serial in self.active.members)
            if gain > 0 or (leaving and (self._local or gain == 0)):
                self._deferred = True
                return self._on_the_way(repaired)
        return self._on_the_way(self._place(able))

    def _on_the_way(self, wanted: Placement) -> Placement:
        """Without a bank of the coordinator's, what may have to come before; what is wanted then follows."""
        if self._local:
            return wanted
        rooms = {member.serial: member.hello.room for member in self._members.values()}
        first = on_the_way(wanted, self.active, self._stock, rooms)
        self._deferred = self._deferred or not (first is wanted or first.is_like(self.active))
        return first

    def _prepared(self, member: Member) -> bool:
        """Whether it is ready for the placement that is being prepared."""
        return self.target is not None and member.ready == self.target.version

    def _place(self, able: Sequence[Member]) -> Placement:
        new = [member for member in able if member.serial not in self.active.members]
        held = {member.serial: member.hello.held for member in new if member.hello.held.any()}
        return self._planner.place(self._version + 1, self._holders(able), self.active, self._here, held)

    def _holders(self, able: Sequence[Member]) -> list[Holder]:
        paces = self.paces()
        return [_holder(member, paces.get(member.serial)) for member in able]

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
                rank=NO_RANK if self._planner.rank is None else self._planner.rank,
            )
            done.append(to(member.control, assign))
        return done

    def _make_room(self, member: Member, target: Placement) -> None:
        """What a member has no room for beside its next set is left out of the one in force: it is given up first."""
        before, after = self.active.held(member.serial), target.held(member.serial)
        if 0 <= member.hello.room < self._stock.bytes_of(before | after):
            self.active = self.active.giving_up(member.serial, after)

    def _is_ready(self, member: Member, experts: int, target: Placement) -> Instructions:
        expected = int(target.held(member.serial).sum())
        if experts != expected:
            return self.unfit(member, f"holds {counted(experts, 'expert')}, {expected} were assigned")
        member.ready = target.version
        return self._tell_the_rest()

    def _tell_the_rest(self) -> Instructions:
        """Once all that were told are ready, those who are not told yet are."""
        assert self.target is not None
        if any(self._members[serial].ready != self.target.version for serial in self._told):
            return []
        return self._assign(one for one in self.target.members if one not in self._told)

    def _settle(self, seconds: float) -> Instructions:
        if self._settled or self._settle_s is None:
            return []
        self._settle_s -= seconds
        self._settled = self._settle_s <= 0 and (self._local or bool(self._able()))  # else nobody could answer
        if self._started or not self._settled:
            return []
        self._started = True
        log.info("going on without those who have not come back")
        return self.retarget()

    def _expected_now(self) -> Expected | None:
        holders = self._holders(self._able())
        there = {holder.serial for holder in holders}
        if self._planner.demand is None or not self.paces() or not there.issuperset(self.active.members):
            return None
        return self._planner.outlook(self.active, holders, self._here)


def _holder(member: Member, pace: Pace | None) -> Holder:
    hello = member.hello
    return Holder(
        serial=member.serial,
        room=hello.room,
        memory=hello.memory,
        able=hello.able if hello.able.size else None,
        pages=hello.pages,
        threads=hello.threads,
        pace=pace,
    )
