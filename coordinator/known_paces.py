"""What is known of everybody's pace: some by their calls, others by a trial, brought to one measure. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from coordinator.member import UNKNOWN_CALL_S, Member
from coordinator.pace import TYPICAL_ENTRIES, Pace

ALIKE = 3.0
"""Whoever takes longer than the quickest of those like it by more than this factor has a pace of its own."""


def known_paces(members: Iterable[Member]) -> dict[int, Pace]:
    """By serial number, of those of whom anything is known.

    Kernels take longer among all else that a machine does than in a trial. So whoever's calls were not timed yet is
    thought to be as much slower than in its trial as the others of its role are (of processors, GPUs tell nothing), and
    as near as the nearest of all. Those who are alike on one machine have one pace: they take turns at being slower,
    since they share its cores and caches.
    """
    there = list(members)
    seen = {one.serial: one.pace for one in there if one.pace is not None}
    nearest_s = min((pace.call_s for pace in seen.values()), default=UNKNOWN_CALL_S)
    paces = dict(seen)
    for one in there:
        if one.serial not in seen and one.tried is not None:
            far_s = one.tried.call_s - UNKNOWN_CALL_S
            entry_s = one.tried.entry_s * _slower(there, one.hello.role)
            paces[one.serial] = replace(one.tried, entry_s=entry_s, call_s=nearest_s + far_s)
    return _pooled(there, paces)


def _slower(members: Iterable[Member], role: str) -> float:
    """How many times longer an entry takes those of a role than in their trials; 1 if that is not known of anybody."""
    alike = [one for one in members if one.hello.role == role]
    return median([one.pace.entry_s / one.tried.entry_s for one in alike if one.pace and one.tried] or [1.0])


def _pooled(members: Iterable[Member], paces: dict[int, Pace]) -> dict[int, Pace]:
    """The same, with one pace for those who should be, and are, nearly alike."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for one in members:
        if one.serial in paces:
            source = "" if one.beat is None else one.beat.source
            key = (one.hello.host, one.hello.role, one.hello.threads, one.hello.isa, source)
            alike.setdefault(key, []).append(one.serial)
    pooled = dict(paces)
    for serials in alike.values():
        quickest_s = min(paces[serial].seconds(TYPICAL_ENTRIES) for serial in serials)
        near = [one for one in serials if paces[one].seconds(TYPICAL_ENTRIES) <= ALIKE * quickest_s]
        common = Pace(
            entry_s=median(paces[serial].entry_s for serial in near),
            call_s=median(paces[serial].call_s for serial in near),
        )
        pooled.update(dict.fromkeys(near, common))
    return pooled
