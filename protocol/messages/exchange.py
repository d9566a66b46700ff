"""One expert for another, when a GPU takes one and gives another back: control."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.errors import ProtocolError
from protocol.messages.base import MAX_STAGED_S, Message


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageExchange(Message):
    """Coordinator to worker: hold one more until CommitExchange. Answered by ExchangeStaged or ExchangeFailed.

    A GPU takes one expert of a layer and gives another back; whoever holds the one is to hold the other in its place.
    """

    exchange: int  # number, not that of another one that is staged
    placement: int  # version whose set is changed: the one assigned last
    layer: int
    leaves: int  # held by the receiver, and not any more after CommitExchange
    comes: int  # not held; from its answer on it is
    within_s: float  # dropped if it is not committed so soon

    def __post_init__(self) -> None:
        if not 0 < self.within_s <= MAX_STAGED_S:
            raise ProtocolError(f"within_s must be above 0 and {MAX_STAGED_S} at most, found {self.within_s}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExchangeStaged(Message):
    """Worker to coordinator: both experts can be run."""

    exchange: int
    residency: int  # as in Beat


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitExchange(Message):
    """Coordinator to worker: hold `leaves` no more. Answered by ExchangeCommitted or ExchangeFailed."""

    exchange: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExchangeCommitted(Message):
    """Worker to coordinator: `comes` is held in place of `leaves`."""

    exchange: int
    residency: int  # as in Beat


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExchangeFailed(Message):
    """Worker to coordinator: this was not staged, or not committed, or was dropped, and why."""

    exchange: int
    reason: str
