"""Who is to hold what: control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from protocol.errors import ProtocolError
from protocol.messages.base import I32, U8, Message, Spec, at_least


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assign(Message):
    """Coordinator to worker: hold these experts. Answered by AssignProgress, then AssignReady or AssignFailed."""

    placement: int  # version; RunExperts names the version it was planned from
    in_force: int  # the version that work is planned from until then; all other earlier ones are void
    held: Annotated[U8, Spec("u1", 2)]  # (layers, experts): 1 where the receiver holds the expert
    rank: Annotated[I32, Spec("i4", 2)]  # (layers, experts): 0 for the one used most, and so on; (0, 0) if unknown

    def __post_init__(self) -> None:
        at_least(0, placement=self.placement, in_force=self.in_force)
        if self.held.size and self.held.max() > 1:
            raise ProtocolError(f"held must be 0 or 1 everywhere, found {self.held.max()}")
        if self.rank.size:
            _check_rank(self.rank, self.held.shape)


def _check_rank(rank: I32, shape: tuple[int, ...]) -> None:
    """ProtocolError unless it has every number below its size once, and this shape."""
    if rank.shape != shape:
        raise ProtocolError(f"rank must be {shape} (layers, experts) as held is, or (0, 0), found {rank.shape}")
    if rank.min() < 0 or rank.max() >= rank.size:  # so bincount takes no more memory than rank does
        raise ProtocolError(f"rank must lie in 0..{rank.size - 1}, found {rank.min()}..{rank.max()}")
    times = np.bincount(rank.ravel())
    if times.max() > 1:
        raise ProtocolError(f"rank must have each number once, found {times.argmax()} {times.max()} times")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssignProgress(Message):
    """Worker to coordinator: layers made ready so far."""

    placement: int
    done: int
    total: int

    def __post_init__(self) -> None:
        if not 0 <= self.done <= self.total:
            raise ProtocolError(f"progress of {self.done} in {self.total} is none")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssignReady(Message):
    """Worker to coordinator: everything assigned by this placement can be run."""

    placement: int
    experts: int  # how many (layer, expert) pairs are held


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssignFailed(Message):
    """Worker to coordinator: this placement cannot be held, and why."""

    placement: int
    reason: str
