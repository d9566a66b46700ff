"""Members that are to leave in order: when they may, and who is told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from coordinator.member import Instructions, Member, to
from coordinator.placement import Placement
from protocol.messages import MAX_REASON, Drained, Stop
from protocol.wording import counted

MAX_WAITING = 16
"""Clients that are told when one member has left: the latest that asked."""


def wait_for(member: Member, client: bytes) -> None:
    """This client is told when the member has left."""
    if client not in member.drained_for:
        member.drained_for = [*member.drained_for, client][-MAX_WAITING:]


def release(members: Iterable[Member], active: Placement) -> Instructions:
    """Those who are to leave may, as soon as the placement in force leaves them nothing to do."""
    done: Instructions = []
    for member in members:
        if member.draining and not member.released and member.serial not in active.members:
            member.released = True
            done.append(to(member.control, Stop()))
    return done


def tell_those_who_wait(member: Member, reason: str) -> Instructions:
    """Its membership has ended."""
    why = "" if member.left or member.released else f"it was lost before others held its experts: {reason}"
    return [to(client, Drained(name=member.name, reason=why)) for client in member.drained_for]


def not_there(name: str, members: Collection[Member], gone: Mapping[str, tuple[Member, str]]) -> Drained:
    """There is nobody of this name to leave."""
    names = ", ".join(sorted(member.name for member in members)) or "nobody"
    before = f" any more: it {gone[name][1]}" if name in gone else ""
    return Drained(name=name, reason=f"nobody is called that{before}; there: {names}"[:MAX_REASON])


def needed(member: Member, experts: int) -> Drained:
    """It cannot leave: nobody else could compute some of its experts."""
    what = f"nobody else can hold {counted(experts, 'expert')} that it holds, and the coordinator computes none"
    return Drained(name=member.name, reason=what)
