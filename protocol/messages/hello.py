"""How a process gets in: control, before anything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from protocol.errors import ProtocolError
from protocol.messages.base import MAX_BEAT_S, MIN_BEAT_S, U8, Message, Spec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hello(Message):
    """Worker or client to coordinator, first on the control connection. Answered by Welcome or Refused."""

    protocol: int
    role: str  # "worker", "peer", a worker whose experts lie in a GPU's memory, "lookahead" or "client"
    name: str
    incarnation: str  # fresh random hex for each life of a process
    pid: int
    host: str
    fingerprint: str  # of the model file, see protocol.fingerprint
    geometry: dict[str, int]  # layers, experts, width, expert_width
    isa: str
    threads: int
    entry_ns: int  # nanoseconds in its kernels for one expert of one row, as of a trial at its start; 0: nobody tried
    room: int  # bytes of experts that it can hold; -1: any number of them, where they lie
    memory: int  # bytes of experts that its memory has room for, wherever they lie; -1: nobody knows
    pages: str  # equal for whoever computes from the same pages of memory, see protocol.pages; empty: from its own
    able: Annotated[U8, Spec("u1", 2)]  # (layers, experts): 1 for those whose weights it has; (0, 0) if all
    held: Annotated[U8, Spec("u1", 2)]  # (layers, experts): 1 for those it holds from before; (0, 0) if none

    def __post_init__(self) -> None:
        for name, table in (("able", self.able), ("held", self.held)):
            if table.size and table.max() > 1:
                raise ProtocolError(f"{name} must be 0 or 1 everywhere, found {table.max()}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Welcome(Message):
    """Coordinator to worker or client: you are in. A worker answers with OpenWork on the work connection."""

    session: str  # incarnation of the coordinator
    token: str  # opens the work connection
    work: str  # endpoint of the work connection
    inputs: str  # endpoint where layer inputs are published
    beat_s: float  # interval at which beats are expected

    def __post_init__(self) -> None:
        if not MIN_BEAT_S <= self.beat_s <= MAX_BEAT_S:
            raise ProtocolError(f"beat_s must lie in {MIN_BEAT_S}..{MAX_BEAT_S}, found {self.beat_s}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refused(Message):
    """Coordinator to worker or client: every mismatch as (field, found, expected). The sender gives up."""

    mismatches: list[list[str]]

    def __post_init__(self) -> None:
        if not self.mismatches or any(len(mismatch) != 3 for mismatch in self.mismatches):
            raise ProtocolError("a refusal names one mismatch at least, each as field, found, expected")

    def in_words(self) -> str:
        """All of it, for people; not escaped."""
        return "; ".join(f"{field} is {found}, expected {expected}" for field, found, expected in self.mismatches)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SayHello(Message):
    """Coordinator to a peer that it does not know, or gave up: say Hello again, on a fresh control connection."""
