"""The membership machine fed by hand: no socket, no clock."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, TypeVar

from coordinator.hello import Terms
from coordinator.member import FromWorker, Instructions, Lost, Member, Tell
from coordinator.members import Members
from coordinator.planner import Planner
from protocol.messages import (
    ALL_EXPERTS,
    NO_EXPERTS,
    PROTOCOL,
    AssignReady,
    Beat,
    Hello,
    Message,
    OpenWork,
    Welcome,
)
from protocol.stock import Stock

TERMS = Terms(
    session="5e55",
    fingerprint="0123456789abcdef",
    geometry={"layers": 3, "dense_layers": 0, "experts": 8, "width": 64, "expert_width": 32},
    work="ipc://@work",
    beat_s=0.5,
    missed_beats=6,
)

STOCK = Stock(slot_bytes=(10,) * 3, experts=8)
PLANNER = Planner(stock=STOCK, own=STOCK.nothing())

M = TypeVar("M", bound=Message)


def hello(name: str, incarnation: str = "a", **change: Any) -> Hello:
    """What a worker of this model says; `change` replaces fields."""
    facts: dict[str, Any] = {
        "protocol": PROTOCOL,
        "role": "worker",
        "name": name,
        "incarnation": incarnation,
        "pid": 1,
        "host": "box",
        "fingerprint": TERMS.fingerprint,
        "geometry": dict(TERMS.geometry),
        "isa": "scalar",
        "threads": 1,
        "entry_ns": 0,
        "room": -1,
        "memory": -1,
        "pages": "",
        "able": ALL_EXPERTS,
        "held": NO_EXPERTS,
    }
    return Hello(**(facts | change))


def beat(token: str, step: int = -1, layer: int = -1, **change: Any) -> Beat:
    """One of a worker that has done nothing yet; `change` replaces fields."""
    made = Beat(
        token=token,
        step=step,
        layer=layer,
        calls=0,
        entries=0,
        busy_us=0,
        wait_us=0,
        dropped=0,
        resident_bytes=0,
        round_trip_us=-1,
        residency=0,
        working_us=0,
        cpu_us=0,
        source="mapped",
        tiers={},
    )
    return replace(made, **change)


def told(instructions: Instructions, kind: type[M], peer: bytes | None = None) -> list[M]:
    """Messages of this kind among the instructions, to that peer if one is named."""
    tells = [one for one in instructions if isinstance(one, Tell) and peer in (None, one.peer)]
    return [one.message for one in tells if isinstance(one.message, kind)]


def lost(instructions: Instructions) -> list[tuple[str, str]]:
    """Names and reasons of those that are members no longer."""
    return [(one.member.name, one.reason) for one in instructions if isinstance(one, Lost)]


def members(expected: int = 0, beat_s: float = TERMS.beat_s, *, local: bool = True) -> Members:
    """A machine without members, whose tokens are numbered."""
    numbers = itertools.count()
    return Members(
        replace(TERMS, beat_s=beat_s),
        PLANNER,
        expected=expected,
        fresh_token=lambda: f"token-{next(numbers)}",
        local=local,
    )


def join(
    mesh: Members, name: str, incarnation: str = "a", peer: bytes | None = None, **change: Any
) -> tuple[Member, Instructions]:
    """Hello, Welcome and OpenWork of one worker."""
    control = peer or f"{name}-{incarnation}-control".encode()
    (welcome,) = told(mesh.hello(control, hello(name, incarnation, **change)), Welcome, control)
    assert welcome.session == TERMS.session
    assert welcome.work == TERMS.work
    done = mesh.open_work(control.replace(b"control", b"work"), OpenWork(token=welcome.token))
    member = mesh.of_control(control)
    assert member is not None
    return member, done


def say(mesh: Members, member: Member, message: FromWorker, now: float = 0.0) -> Instructions:
    """This member's message on its control connection."""
    return mesh.from_worker(member.control, message, now)


def make_ready(mesh: Members) -> None:
    """Every member of the placement being prepared reports it ready, newcomers first."""
    assert mesh.assignment.target is not None
    for serial in sorted(mesh.assignment.target.members, key=lambda one: one in mesh.assignment.active.members):
        member = mesh.get(serial)
        assert member is not None
        experts = int(mesh.assignment.target.held(serial).sum())
        say(mesh, member, AssignReady(placement=mesh.assignment.target.version, experts=experts))
    assert mesh.assignment.switch()


def pass_time(mesh: Members, start: float, seconds: float) -> Instructions:
    """Ticks every tenth of a second from `start` on."""
    ticks = [mesh.tick(start + 0.1 * turn) for turn in range(round(seconds * 10) + 1)]
    return [one for done in ticks for one in done]
