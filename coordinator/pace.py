"""How fast those are who compute experts: values, measured in a trial at first and by their calls later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from coordinator.plan import DEVICE, LOCAL
from coordinator.profile import F64
from protocol.messages import I64

TYPICAL_ENTRIES = 2
"""Of a call, by which paces are compared."""
NOTICEABLE_S = 200e-6
"""Times of a layer that differ by less are alike: schedulers and caches make such differences all the time."""
NOTICEABLE = 1.5
"""So are calls that do not differ by more than this factor, beside that: where they take long, they vary."""


def farther_s(call_s: F64) -> F64:
    """(holders,): by how much each one's `call_s` noticeably exceeds the shortest; what they have in common is none."""
    farther: F64 = np.maximum(call_s - NOTICEABLE * call_s.min(initial=np.inf) - NOTICEABLE_S, 0.0)
    return farther


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Of one holder."""

    entry_s: float
    """Seconds in its kernels for one expert of one row."""
    call_s: float = 0.0
    """Seconds that a call takes besides: both ways, waking up, checking, packing."""

    def seconds(self, entries: float) -> float:
        """What a call of so many entries takes."""
        return self.call_s + entries * self.entry_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paces:
    """Of all who may compute a layer, as columns: the local bank, the coordinator's device, then members ascending."""

    serials: I64
    """(holders,): LOCAL, DEVICE, then members' serial numbers."""
    entry_s: F64
    """(holders,): as of Pace."""
    call_s: F64
    """(holders,)"""
    send_s: float
    """Seconds that the coordinator takes to build and hand over one call."""

    @classmethod
    def of(cls, members: Mapping[int, Pace], *, local: Pace, device: Pace | None = None, send_s: float = 0.0) -> Self:
        """By serial number; the local bank's calls are none, so its call_s should be 0."""
        there = {LOCAL: local, DEVICE: device or Pace(entry_s=0.0)} | dict(sorted(members.items()))
        return cls(
            serials=np.array(list(there), np.int64),
            entry_s=np.array([pace.entry_s for pace in there.values()], np.float64),
            call_s=np.array([pace.call_s for pace in there.values()], np.float64),
            send_s=send_s,
        )

    @property
    def are_members(self) -> slice:
        """The columns of members: they are sent calls."""
        return slice(2, None)
