"""What is known of everybody's pace: some by their calls, others by a trial, brought to one measure. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from coordinator.member import UNKNOWN_CALL_S, Member
from coordinator.pace import Pace


def known_paces(members: Iterable[Member]) -> dict[int, Pace]:
    """By serial number, of those of whom anything is known.

    Kernels take longer among all else that a machine does than in a trial. So whoever's calls were not timed yet is
    thought to be as much slower than in its trial as the others are, and as near as the nearest of them.
    """
    there = list(members)
    seen = {one.serial: one.pace for one in there if one.pace is not None}
    slower = median([one.pace.entry_s / one.tried.entry_s for one in there if one.pace and one.tried] or [1.0])
    nearest_s = min((pace.call_s for pace in seen.values()), default=UNKNOWN_CALL_S)
    paces = dict(seen)
    for one in there:
        if one.serial not in seen and one.tried is not None:
            far_s = one.tried.call_s - UNKNOWN_CALL_S
            paces[one.serial] = replace(one.tried, entry_s=one.tried.entry_s * slower, call_s=nearest_s + far_s)
    return paces
