"""What Status and Finished tell: plain values about members and counters, for people and tests."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from coordinator.cost import Expected
from coordinator.member import Member, State
from coordinator.members import Members
from coordinator.pace import Pace
from coordinator.plan import DEVICE
from coordinator.signs import Sign, sign_of
from coordinator.tallies import Counters, Tally
from protocol.expert_sources import BEAT_SOURCES, TIER_COUNTS
from protocol.messages import Beat

SHOWN_GONE_S = 600.0
"""For so long after they were last heard of, members that are gone are told of."""
SHOWN_GONE = 16
"""And no more of them than that."""


def mesh_report(members: Members, counters: Counters, suspects: Collection[int], now: float) -> dict[str, Any]:
    """Placement, counters and every worker, those that went lately last. `suspects` are serial numbers."""
    assignment = members.assignment
    there = sorted(members, key=lambda member: member.name)
    outlook, paces = assignment.outlook(), assignment.paces()
    living = [
        _worker(
            member,
            members.state(member, late=member.serial in suspects),
            int(assignment.active.held(member.serial).sum()),
            counters,
            now,
        )
        | _sign(sign_of(member, members.terms.beat_s))
        | _standing(members, member, paces.get(member.serial), outlook)
        for member in there
        if member.holds
    ]
    left = _left_lately(members, now)
    gone = [
        _worker(member, members.state(member), 0, counters, now) | {"reason": reason}
        for member, reason in left
        if member.holds
    ]
    silent = [
        _lookahead(member, members.state(member).value, now) | {"reason": reason}
        for member, reason in left
        if not member.holds
    ]
    return {
        "placement": assignment.active.version,
        "outlook": None if outlook is None else _outlook(outlook),
        "device_experts": int(np.count_nonzero(assignment.active.owner == DEVICE)),
        "local_entries": counters.local_entries,
        "device_entries": counters.device_entries,
        "replans": counters.replans,
        "hedges": counters.hedges,
        "late_replies": counters.late_replies,
        "dropped": counters.dropped,
        "canaries": counters.canaries,
        "audits": counters.audits,
        "workers": living + gone,
        "lookahead": [_lookahead(member, "ready", now) for member in there if not member.holds] + silent,
    }


def _outlook(outlook: Expected) -> dict[str, Any]:
    """What a token is expected to take, and of what that is made up, in microseconds."""
    limits = {what: round(seconds * 1e6) for what, seconds in outlook.limits.items()}
    return {"token_us": round(outlook.token_s * 1e6), "limits": limits}


def _standing(members: Members, member: Member, pace: Pace | None, outlook: Expected | None) -> dict[str, Any]:
    """How fast it is as far as that is known, how long of a token it is the last one, and why it holds nothing."""
    facts: dict[str, Any] = {
        "pace": None if pace is None else {"entry_us": pace.entry_s * 1e6, "call_us": pace.call_s * 1e6},
        "last_us": None if outlook is None else round(outlook.last_of(member.serial) * 1e6),
    }
    reason = members.assignment.active.left_out.get(member.serial)
    return facts if reason is None else facts | {"left_out": reason}


def _left_lately(members: Members, now: float) -> list[tuple[Member, str]]:
    """By name, and why: the last ones that ended, if they were heard of in the last minutes."""
    latest = list(members.gone.values())[-SHOWN_GONE:]
    lately = [one for one in latest if one[0].beat_at is None or now - one[0].beat_at <= SHOWN_GONE_S]
    return sorted(lately, key=lambda one: one[0].name)


def _lookahead(member: Member, state: str, now: float) -> dict[str, Any]:
    """One that looks ahead; its beats count layer inputs as calls, and experts that it hinted at as entries."""
    beat = member.beat
    return {
        "name": member.name,
        "pid": member.hello.pid,
        "host": member.hello.host,
        "state": state,
        "inputs": 0 if beat is None else _count(beat.calls),
        "hints": 0 if beat is None else _count(beat.entries),
        "busy_s": 0.0 if beat is None else _count(beat.busy_us) * 1e-6,
        "beat_age_s": None if member.beat_at is None else max(0.0, now - member.beat_at),
        "resident_bytes": None if beat is None else _count(beat.resident_bytes),
        "dropped": None if beat is None else _count(beat.dropped),
    }


def _worker(member: Member, state: State, experts: int, counters: Counters, now: float) -> dict[str, Any]:
    tally, beat = counters.workers.get(member.name, Tally()), member.beat
    facts: dict[str, Any] = {
        "name": member.name,
        "role": member.hello.role,
        "pid": member.hello.pid,
        "host": member.hello.host,
        "isa": member.hello.isa,
        "threads": member.hello.threads,
        "state": state.value,
        "experts": experts,
        "calls": tally.calls,
        "entries": tally.entries,
        "busy_s": tally.busy_us * 1e-6,
        "wait_s": tally.wait_us * 1e-6,
        "beat_age_s": None if member.beat_at is None else max(0.0, now - member.beat_at),
        "resident_bytes": None if beat is None else _count(beat.resident_bytes),
        "dropped": None if beat is None else _count(beat.dropped),
        "source": None if beat is None else beat.source if beat.source in BEAT_SOURCES else "unknown",
        "tiers": {} if beat is None else _tiers(beat),
        "since_start": None if beat is None else _since_start(beat),
        "placement": member.ready,
        "progress": list(member.progress),
    }
    return facts | ({"reason": member.failed} if member.failed else {})


def _sign(sign: Sign) -> dict[str, Any]:
    return {"sign": sign.word} | ({"why": sign.why} if sign.why else {})


def _since_start(beat: Beat) -> dict[str, Any]:
    """By the process's own account and since it began, as its tiers count; the tallies are of accepted answers."""
    return {"calls": _count(beat.calls), "busy_s": _count(beat.busy_us) * 1e-6}


def _tiers(beat: Beat) -> dict[str, int]:
    """What is known of what a process claims to have counted: a report has no room for thousands of names."""
    return {name: _count(beat.tiers[name]) for name in TIER_COUNTS if name in beat.tiers}


def _count(claimed: int) -> int:
    """Counts are never below 0; the codec keeps them within 64 bits."""
    return max(0, claimed)
