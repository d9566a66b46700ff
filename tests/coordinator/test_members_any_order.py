"""The membership machine, fed by hypothesis."""

from __future__ import annotations

import itertools

import numpy as np
from bare_members import TERMS, beat, hello, members
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.member import FromWorker, Instructions, Lost
from coordinator.plan import LOCAL
from protocol.messages import (
    ALL_EXPERTS,
    NO_EXPERTS,
    U8,
    Assign,
    AssignFailed,
    AssignReady,
    Hello,
    OpenWork,
    Stop,
    Stopped,
    Welcome,
)


class Mesh(RuleBasedStateMachine):
    """Workers that join, report, fall silent, die, return and lie, in any order; time passes now and then."""

    NAMES = "abc"
    SHARES = (ALL_EXPERTS, *np.random.default_rng(1).integers(0, 2, (3, 3, 8)).astype(np.uint8))
    """What workers have: everything, or a share."""
    HELD = (NO_EXPERTS, np.ones((3, 8), np.uint8), *np.random.default_rng(2).integers(0, 2, (3, 3, 8)).astype(np.uint8))
    """What workers say that they hold from before."""

    def __init__(self) -> None:
        super().__init__()
        self.mesh = members(expected=2)
        self.now = 0.0
        self.life = itertools.count()
        self.processes: dict[bytes, Hello] = {}  # by control peer
        self.tokens: dict[bytes, str] = {}
        self.assigned: dict[bytes, Assign] = {}
        self.versions: list[int] = []

    def follow(self, done: Instructions) -> None:
        """Do what the sockets' owner and the workers would."""
        for one in done:
            if isinstance(one, Lost):
                assert self.mesh.get(one.member.serial) is None
                continue
            if one.channel == "control" and one.peer not in self.processes:
                self.follow(self.mesh.unroutable(one.peer))
                continue
            match one.message:
                case Welcome(token=token):
                    self.tokens[one.peer] = token
                case Assign() as assign:
                    self.assigned[one.peer] = assign
                case Stop():
                    self.follow(self.mesh.from_worker(one.peer, Stopped(), self.now))

    @rule(name=st.sampled_from(NAMES), able=st.sampled_from(SHARES), held=st.sampled_from(HELD))
    def start(self, name: str, able: U8, held: U8) -> None:
        life = str(next(self.life))
        peer = f"{name}-{life}".encode()
        self.processes[peer] = hello(name, life, able=able, held=held)
        self.follow(self.mesh.hello(peer, self.processes[peer]))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        del self.processes[data.draw(st.sampled_from(sorted(self.processes)))]

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def say_hello_again(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(sorted(self.processes)))
        self.follow(self.mesh.hello(peer, self.processes[peer]))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def open_work(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(sorted(self.tokens)))
        self.follow(self.mesh.open_work(b"work-" + peer, OpenWork(token=self.tokens[peer])))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), kind=st.sampled_from(["beat", "ready", "few", "failed", "stopped", "closed"]))
    def speak(self, data: st.DataObject, kind: str) -> None:
        peer = data.draw(st.sampled_from(sorted(self.tokens)))
        assign = self.assigned.get(peer)
        version, experts = (0, 0) if assign is None else (assign.placement, int(assign.held.sum()))
        messages: dict[str, FromWorker] = {
            "beat": beat(self.tokens[peer]),
            "ready": AssignReady(placement=version, experts=experts),
            "few": AssignReady(placement=version, experts=experts - 1),
            "failed": AssignFailed(placement=version, reason="x"),
            "stopped": Stopped(),
        }
        if kind == "closed":
            self.follow(self.mesh.unroutable(peer))
        else:
            self.follow(self.mesh.from_worker(peer, messages[kind], self.now))

    @rule()
    def everybody_gets_ready(self) -> None:
        for peer, assign in self.assigned.items():
            ready = AssignReady(placement=assign.placement, experts=int(assign.held.sum()))
            self.follow(self.mesh.from_worker(peer, ready, self.now))

    @rule(name=st.sampled_from(NAMES))
    def drain(self, name: str) -> None:
        self.follow(self.mesh.drain(b"a client that is gone", name))

    @rule()
    def nothing_happens_for_a_while(self) -> None:
        """All that is prepared is put in force, and nobody is left out."""
        for _ in range(4):
            self.everybody_gets_ready()
            self.everybody_gets_ready()
            self.switch()
            self.follow(self.mesh.tick(self.now))
        assert self.mesh.assignment.target is None
        assert not any(member.draining for member in self.mesh)
        if self.mesh.assignment._started:
            assert set(self.mesh.assignment.active.members) == self.able()

    def able(self) -> set[int]:
        """Those who can hold something, and stay."""
        there = [one for one in self.mesh if one.work is not None and not one.failed and not one.draining]
        return {member.serial for member in there}

    @rule(passed=st.sampled_from([0.1, 0.5, 5.0]), often=st.integers(1, 8))
    def pass_time(self, passed: float, often: int) -> None:
        for _ in range(often):
            self.now += passed
            self.follow(self.mesh.tick(self.now))

    @rule()
    def switch(self) -> None:
        target = self.mesh.assignment.target
        if self.mesh.assignment.switch():
            assert self.mesh.assignment.active is target
            self.versions.append(self.mesh.assignment.active.version)
            assert self.versions == sorted(set(self.versions))

    @invariant()
    def names_are_unique(self) -> None:
        names = [member.name for member in self.mesh]
        assert len(names) == len(set(names))
        assert not set(names) & set(self.mesh.gone)

    @invariant()
    def only_living_members_hold_experts(self) -> None:
        serials = {member.serial for member in self.mesh}
        for placement in (self.mesh.assignment.active, self.mesh.assignment.target):
            if placement is not None:
                assert set(placement.members) <= serials
                assert set(placement.owner.ravel().tolist()) <= {*placement.members, LOCAL}

    @invariant()
    def whoever_is_able_is_in_the_latest_placement(self) -> None:
        able = self.able()
        latest = self.mesh.assignment.active if self.mesh.assignment.target is None else self.mesh.assignment.target
        if self.mesh.assignment._started:
            assert set(latest.members) <= able | {one.serial for one in self.mesh if one.draining}
            assert self.mesh.assignment._deferred or set(latest.members) >= able
            hellos = [self.mesh.get(serial).hello for serial in latest.members]
            somebodys = np.zeros((3, 8), np.bool_)
            for one in hellos:
                somebodys |= one.able.astype(np.bool_) if one.able.size else True
            np.testing.assert_array_equal(latest.owner == LOCAL, ~somebodys)

    @invariant()
    def nobody_is_given_what_it_has_not(self) -> None:
        for placement in filter(None, (self.mesh.assignment.active, self.mesh.assignment.target)):
            for member in self.mesh:
                if member.hello.able.size:
                    assert not (placement.held(member.serial) > member.hello.able).any()

    @invariant()
    def connections_lead_to_their_members(self) -> None:
        for member in self.mesh:
            assert self.mesh.of_control(member.control) is member
            assert member.work is None or self.mesh.of_work(member.work) is member
            assert member.silent_s <= TERMS.silence_limit_s


TestMesh = Mesh.TestCase
TestMesh.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
