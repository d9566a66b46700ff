"""One membership of one worker, and what its state machine asks the sockets' owner to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coordinator.hello import HOLDERS
from protocol.messages import AssignFailed, AssignProgress, AssignReady, Beat, Hello, Message, Stopped

FromWorker = Beat | AssignProgress | AssignReady | AssignFailed | Stopped
"""What a welcomed worker says on the control connection."""


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
    quarantined: bool = False
    """Its bits are not ours, so whatever it says is worth nothing; `failed` tells which."""
    silent_s: float = 0.0
    """Time since it was last heard, counting only time in which the coordinator listened."""
    beat: Beat | None = None
    beat_at: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it is one that holds experts."""
        return self.hello.role in HOLDERS

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
