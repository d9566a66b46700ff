"""One membership of one worker, and what its state machine asks the sockets' owner to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from coordinator.hello import HOLDERS
from coordinator.pace import Pace
from protocol.messages import AssignFailed, AssignProgress, AssignReady, Beat, Drain, Hello, Message, Stopped

FromWorker = Beat | AssignProgress | AssignReady | AssignFailed | Drain | Stopped
"""What a welcomed worker says on the control connection."""


UNKNOWN_CALL_S = 300e-6
"""What a call takes beside the kernels, until that is known."""
MAX_CALL_S = 10.0
BUSY_S = 0.02
"""Of the round trip of a beat: for so long a coordinator that computes may not look, or a machine may be busy."""


class State(StrEnum):
    """Where a membership stands; docs/cluster.md tells what leads from one to another."""

    HELLO = "hello"
    """It is welcome, and nothing has been assigned to it yet."""
    ASSIGNED = "assigned"
    """It was told what to hold, and has nothing of it ready."""
    LOADING = "loading"
    """It makes that ready, layer by layer, or waits for others to be."""
    READY = "ready"
    """It is part of the placement in force."""
    SUSPECT = "suspect"
    """It is late with an answer, and gets no work until that has come."""
    DRAINING = "draining"
    """It leaves as soon as others hold its experts, and computes until then."""
    FAILED = "failed"
    """It gets nothing more until it says Hello anew."""
    LOST = "lost"
    """It is over: silent, or not to be reached."""
    GONE = "gone"
    """It is over: it left of its own will, or because it was asked to."""


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One membership: from a Hello that was welcomed until its worker leaves, is lost or says Hello again."""

    serial: int
    """Names the membership; what owner tables hold."""
    hello: Hello
    token: str
    """Opens its work connection and signs its beats."""
    control: bytes
    """Peer of the control connection."""
    work: bytes | None = None
    """Peer of the work connection, once it is open."""
    ready: int = 0
    """The placement it has last reported ready."""
    progress: tuple[int, int] = (0, 0)
    """(done, total) layers of the assignment under way."""
    failed: str = ""
    """Why it gets nothing more: it could not hold what it was assigned, or failed too often."""
    pace: Pace | None = None
    """How fast its calls were, once some were timed."""
    quarantined: bool = False
    """Its bits are not ours, so whatever it says is worth nothing; `failed` tells which."""
    silent_s: float = 0.0
    """Time since it was last heard, counting only time in which the coordinator listened."""
    beat: Beat | None = None
    beat_at: float | None = None
    cpu_share: float | None = None
    """Processor time of its process per time, between the latest two beats."""
    draining: bool = False
    """It is to leave once others hold its experts."""
    drained_for: list[bytes] = field(default_factory=list)
    """Clients that wait for that."""
    released: bool = False
    """It was told to leave, for others do."""
    left: bool = False
    """Its membership ended in order."""

    def take(self, beat: Beat, now: float) -> None:
        """The latest beat, which came at `now`."""
        if self.beat is not None and self.beat_at is not None and now > self.beat_at:
            self.cpu_share = max(0, beat.cpu_us - self.beat.cpu_us) * 1e-6 / (now - self.beat_at)
        self.beat, self.beat_at = beat, now

    @property
    def holds(self) -> bool:
        """Whether it is one that holds experts."""
        return self.hello.role in HOLDERS

    @property
    def tried(self) -> Pace | None:
        """How fast it should be: by its own trial and its beats, which tell no more than whether it is far away."""
        if not self.hello.entry_ns:
            return None
        round_trip_s = 0.0 if self.beat is None else self.beat.round_trip_us * 1e-6
        far_s = min(max(0.0, round_trip_s - BUSY_S), MAX_CALL_S)
        return Pace(entry_s=self.hello.entry_ns * 1e-9, call_s=UNKNOWN_CALL_S + far_s)

    @property
    def name(self) -> str:
        """What its worker is called; names are unique among living members."""
        return self.hello.name


@dataclass(slots=True, kw_only=True, eq=False)
class Claim:
    """A Hello under a name that another worker has: decided when that one shows that it lives, or does not."""

    peer: bytes
    hello: Hello
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tell:
    """Send this message; if the peer turns out to be unreachable, say so to `Members.unroutable`."""

    channel: Literal["control", "work"]
    peer: bytes
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lost:
    """This membership is over; whatever it was asked to compute must come from elsewhere."""

    member: Member
    reason: str


Instruction = Tell | Lost
Instructions = list[Instruction]


def to(peer: bytes, message: Message) -> Tell:
    """An instruction to send on the control connection."""
    return Tell(channel="control", peer=peer, message=message)
