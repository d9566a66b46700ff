"""Being alive, and ending: control."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.messages.base import Message


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beat(Message):
    """Worker to coordinator, every beat_s: alive, and how far the compute loop is. Answered by BeatSeen."""

    token: str
    step: int  # of the last RunExperts of this membership that was answered, -1 before the first
    layer: int
    calls: int
    entries: int
    busy_us: int  # time in the kernels
    wait_us: int  # time in the compute loop waiting for work
    dropped: int  # malformed or misdirected messages
    resident_bytes: int
    round_trip_us: int  # from a beat to its BeatSeen, the least of the last few; -1: too few were answered yet
    residency: int  # how often what is held has changed in this session
    working_us: int  # since the compute loop has had the work in hand, 0 without any
    cpu_us: int  # processor time of the process
    source: str  # where its experts come from: mapped, copies, arena, shared or direct; vram for a peer
    tiers: dict[str, int]  # what the tiers have counted, see expert_worker.sources.source.Counters


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BeatSeen(Message):
    """Coordinator to worker: the answer to Beat; a worker that misses it for long enough leaves."""

    session: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stop(Message):
    """Coordinator to worker, or client to coordinator: finish what is in hand and exit. Answered by Stopped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stopped(Message):
    """Worker to coordinator, last message: it leaves of its own will."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drain(Message):
    """Client to coordinator, or a worker of itself: let it leave once others hold its experts. Answered by Drained.

    A worker gets Stop instead.
    """

    name: str  # of the worker, peer or lookahead process


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drained(Message):
    """Coordinator to client: a member has left as Drain asked, or why it has not."""

    name: str
    reason: str  # empty if it left in order
