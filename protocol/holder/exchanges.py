"""Which exchanges are staged at a holder, and when they end: events in, what is held changed; no bank, no clock.

The holder of one expert is to hold another of the same layer in its place. While that is staged it holds both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from protocol.errors import ExpertmeshError
from protocol.holder.holdings import Holdings
from protocol.messages import MAX_STAGED, U8, StageExchange


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exchange:
    """One that was asked for and is neither committed nor dropped."""

    asked: StageExchange
    until: float
    """When it is dropped, on the clock that it was asked for with."""
    staged: bool = False
    """Whether `comes` is ready, and held."""


class ExchangeError(ExpertmeshError):
    """What was asked for cannot be; why, in words. Nothing was changed."""


class Exchanges:
    """Those of one membership, all of which are of the placement assigned last."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._placement = -1
        self._exchanges: dict[int, Exchange] = {}  # by number

    @property
    def residency(self) -> int:
        """See `Holdings.residency`."""
        return self._holdings.residency

    def assign(self, placement: int) -> list[StageExchange]:
        """All that has been staged is dropped, and from now on this version's set is what can be changed."""
        self._placement = placement
        return self.drop_all()

    def ask(self, asked: StageExchange, now: float) -> None:
        """From now on `comes` is being made ready. ExchangeError if this cannot be staged."""
        if refusal := self._refusal(asked):
            raise ExchangeError(refusal)
        self._exchanges[asked.exchange] = Exchange(asked=asked, until=now + asked.within_s)

    def stage(self, number: int) -> None:
        """What it asked for is ready: hold `comes` too."""
        self._exchanges[number] = ready = replace(self._exchanges[number], staged=True)
        self._holdings.hold(ready.asked.placement, ready.asked.layer, ready.asked.comes)

    def commit(self, number: int) -> StageExchange:
        """Hold `leaves` no more; what was asked for. ExchangeError if it is not staged."""
        if (found := self._exchanges.get(number)) is None:
            raise ExchangeError(f"exchange {number} is not staged here")
        if not found.staged:
            raise ExchangeError(f"expert {found.asked.comes} of layer {found.asked.layer} is not ready yet")
        del self._exchanges[number]
        self._holdings.let_go(found.asked.placement, found.asked.layer, found.asked.leaves)
        return found.asked

    def expire(self, now: float) -> list[StageExchange]:
        """Drop those whose time is up."""
        return [self.drop(number) for number, one in tuple(self._exchanges.items()) if now >= one.until]

    def drop(self, number: int) -> StageExchange:
        """Hold what was held before it; what was asked for."""
        dropped = self._exchanges.pop(number)
        if dropped.staged:
            self._holdings.let_go(dropped.asked.placement, dropped.asked.layer, dropped.asked.comes)
        return dropped.asked

    def drop_all(self) -> list[StageExchange]:
        """Each of them."""
        return [self.drop(number) for number in tuple(self._exchanges)]

    def _refusal(self, asked: StageExchange) -> str:
        """Why this cannot be staged; empty if it can."""
        if asked.exchange in self._exchanges:
            return f"exchange {asked.exchange} is under way already"
        if len(self._exchanges) >= MAX_STAGED:
            return f"{len(self._exchanges)} exchanges are under way, {MAX_STAGED} at most can be"
        if asked.placement != self._placement:
            latest = f"which is {self._placement}" if self._placement >= 0 else "where none was yet"
            return f"placement {asked.placement} is not the latest that was assigned here, {latest}"
        if (held := self._holdings.get(asked.placement)) is None:
            return f"placement {asked.placement} is not ready yet"
        for other in self._exchanges.values():
            if (shared := _shared(asked, other.asked)) >= 0:
                return f"expert {shared} of layer {asked.layer} is in exchange {other.asked.exchange}"
        return why_not(held, asked.layer, asked.leaves, asked.comes)


def why_not(held: U8, layer: int, leaves: int, comes: int) -> str:
    """Why an expert cannot take another's place in `held` (layers, experts); empty if it can."""
    layers, experts = held.shape
    if not 0 <= layer < layers:
        return f"the model has layers 0 to {layers - 1}, found {layer}"
    for expert in (leaves, comes):
        if not 0 <= expert < experts:
            return f"the model has experts 0 to {experts - 1}, found {expert}"
    if leaves == comes:
        return f"expert {comes} of layer {layer} cannot take its own place"
    if not held[layer, leaves]:
        return f"expert {leaves} of layer {layer} is to leave and is not held"
    if held[layer, comes]:
        return f"expert {comes} of layer {layer} is to come and is held already"
    return ""


def _shared(one: StageExchange, other: StageExchange) -> int:
    """An expert that both have a part in; -1 if there is none."""
    if one.layer != other.layer:
        return -1
    return min({one.leaves, one.comes} & {other.leaves, other.comes}, default=-1)
