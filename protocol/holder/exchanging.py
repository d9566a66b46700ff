"""Stages and commits exchanges at a holder: has its bank make experts ready, a piece at a time, and reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from protocol.errors import ExpertError, RoomError
from protocol.holder.exchanges import ExchangeError, Exchanges
from protocol.holder.holdings import Holdings, Preparer
from protocol.messages import (
    MAX_REASON,
    CommitExchange,
    ExchangeCommitted,
    ExchangeFailed,
    ExchangeStaged,
    Message,
    StageExchange,
)


class Exchanging:
    """Of the control thread, for one membership after the other. Times are readings of any one clock, in seconds."""

    def __init__(self, bank: Preparer, say: Callable[[Message], None]) -> None:
        self._bank = bank
        self._say = say
        self._exchanges = Exchanges(Holdings())
        self._reading: deque[tuple[StageExchange, Iterator[None]]] = deque()

    @property
    def residency(self) -> int:
        """As in Beat."""
        return self._exchanges.residency

    def begin(self, holdings: Holdings) -> None:
        """Another membership, with these sets: what the former one has staged is dropped, and nobody hears of it."""
        for dropped in self._exchanges.drop_all():
            self._forget(dropped)
        self._exchanges = Exchanges(holdings)

    def assigned(self, placement: int) -> None:
        """This is to be made ready: what is staged is dropped."""
        self._dropped(self._exchanges.assign(placement), f"placement {placement} was assigned")

    def hear(self, asked: StageExchange | CommitExchange, now: float) -> None:
        """Begin what is asked, or refuse it."""
        try:
            if isinstance(asked, StageExchange):
                self._exchanges.ask(asked, now)
                self._reading.append((asked, self._pieces(asked)))
            else:
                done = self._exchanges.commit(asked.exchange)
                self._bank.discard(done.layer, done.leaves)
                self._say(ExchangeCommitted(exchange=asked.exchange, residency=self.residency))
        except ExchangeError as error:
            self._failed(asked.exchange, str(error))

    def work(self) -> bool:
        """Do the next piece of what is being made ready; False if there is none."""
        if not self._reading:
            return False
        asked, pieces = self._reading[0]
        try:
            for _ in pieces:
                return True
        except (ExpertError, RoomError) as error:
            self._forget(self._exchanges.drop(asked.exchange))
            self._failed(asked.exchange, str(error))
            return True
        self._reading.popleft()
        self._exchanges.stage(asked.exchange)
        self._say(ExchangeStaged(exchange=asked.exchange, residency=self.residency))
        return True

    def expire(self, now: float) -> None:
        """Drop what was not committed in time."""
        for dropped in self._exchanges.expire(now):
            self._dropped([dropped], f"not committed within {dropped.within_s:g} s")

    def _pieces(self, asked: StageExchange) -> Iterator[None]:
        yield from self._bank.stage(asked.layer, asked.leaves, asked.comes)

    def _dropped(self, exchanges: list[StageExchange], why: str) -> None:
        for dropped in exchanges:
            self._forget(dropped)
            self._failed(dropped.exchange, f"dropped: {why}")

    def _forget(self, dropped: StageExchange) -> None:
        """Of one that the table has dropped."""
        self._reading = deque(one for one in self._reading if one[0] is not dropped)
        self._bank.discard(dropped.layer, dropped.comes)

    def _failed(self, exchange: int, reason: str) -> None:
        self._say(ExchangeFailed(exchange=exchange, reason=reason[:MAX_REASON]))
