"""Brings the weights of assigned experts into a worker's cache, piece by piece, before they are made ready."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterator

from expert_worker.sources.source import Experts
from expert_worker.supply import Supply
from expert_worker.weights.asking import Asking, Came, Dial, Patience
from expert_worker.weights.cache import Cache
from protocol.errors import ExpertError
from protocol.messages import U8

log = logging.getLogger(__name__)

LOOK_S = 0.05
"""For a piece, before the control thread looks after other things."""
ASK_AGAIN_S = 5.0
"""Without any piece, before all are asked for again."""
GIVE_UP_S = 60.0
"""Without any piece, before an expert counts as not to be had."""
OTHERS_S = 5.0
"""Another process of this machine may take for pieces that it fetches, without any news; then they are fetched here."""
DAMAGED_AT_MOST = 3
"""Times that the same piece may come damaged."""


class Fetching(Supply):
    """Of one worker; all of it in its control thread."""

    def __init__(self, cache: Cache, endpoint: str, fingerprint: str, dial: Dial) -> None:
        """`endpoint`: of the weights process beside the coordinator. Closes `cache` at the end."""
        super().__init__()
        self._cache = cache
        self._endpoint = endpoint
        self._fingerprint = fingerprint
        self._dial = dial

    def make_room(self, wanted: U8) -> None:
        """RoomError if the disk has no room for what is not there of these (layers, experts)."""
        needed = self._cache.missing_bytes(wanted)
        self.counts["fetch_left_bytes"] = needed
        self._cache.check_room(needed)
        if needed:
            log.info("fetching %.1f MB of weights from %s", needed / 1e6, self._endpoint)

    def bring(self, layer: int, experts: Experts) -> Iterator[None]:
        """Fetch what is not there of these, LOOK_S for an item at most. ExpertError or RoomError if that fails."""
        missing = self._cache.missing(layer, experts)
        if not missing:
            return
        run = _Run(self._cache, Asking(self._endpoint, self._fingerprint, self._dial), missing, self.counts)
        began = time.monotonic()
        try:
            for _ in run.steps():
                now = time.monotonic()
                self.counts["fetch_us"] += int((now - began) * 1e6)
                began = now
                yield
        finally:  # whatever came is kept, also if the rest is not wanted any more
            try:
                self._cache.commit()
            finally:
                run.close()

    def close(self) -> None:
        """Give up the cache."""
        self._cache.close()


class _Run:
    """Some pieces of one layer, until all are there."""

    def __init__(self, cache: Cache, asking: Asking, missing: list[int], counts: dict[str, int]) -> None:
        self._cache = cache
        self._asking = asking
        self._counts = counts
        self._left = deque(missing)
        self._others: list[int] = []
        """Fetched by other processes of this machine."""
        self._numbers = {self._cache.grid.piece(number)[:2]: number for number in missing}
        self._claimed: set[int] = set()
        self._damaged: Counter[int] = Counter()

    def steps(self) -> Iterator[None]:
        """Each does a little; when they end, all pieces are there but for a commit."""
        patience, asked_again_at = Patience(time.monotonic()), 0.0
        while self._left or self._asking.asked or self._others:
            self._ask()
            came = self._asking.hear(LOOK_S)
            waited_s = patience.look(time.monotonic())
            if came is not None:
                self._take(came)
                patience.news()
                asked_again_at = 0.0
            elif self._asking.asked and waited_s - asked_again_at >= ASK_AGAIN_S:
                asked_again_at = waited_s
                self._asking.ask_again()
            elif not self._asking.asked:
                self._cache.commit()  # others wait for what was fetched here
                if self._look_at_others(waited_s):
                    patience.news()
            if waited_s >= GIVE_UP_S and came is None:
                raise self._error(self._some(), f"nothing has come from {self._asking.endpoint} for {GIVE_UP_S:g} s")
            yield

    def close(self) -> None:
        """Claims of what did not come are given up; what was not committed is lost."""
        self._asking.close()
        self._cache.give_up(self._claimed)

    def _ask(self) -> None:
        while self._left and self._asking.has_room:
            number = self._left.popleft()
            if self._cache.claim(number):
                self._claimed.add(number)
                self._fetch(number)
            else:
                self._others.append(number)

    def _fetch(self, number: int) -> None:
        if self._cache.has(number):  # another process has fetched it since we looked
            self._there(number)
        else:
            self._asking.ask(self._cache.grid.piece(number))

    def _take(self, came: Came) -> None:
        number = self._numbers[came.piece[:2]]
        if came.refused:
            raise self._error(number, f"{self._asking.endpoint} has not got it: {came.refused}")
        if came.data is not None:
            self._cache.write(number, came.data)
            self._counts["fetched_bytes"] += came.piece.bytes
            self._there(number)
            return
        self._counts["fetched_damaged"] += 1
        self._damaged[number] += 1
        layer, expert, role = self._cache.grid.owner(number)
        log.warning(
            "layer %d, expert %d: a piece of its %s (%d bytes at %d) came damaged from %s",
            *(layer, expert, role, came.piece.bytes, came.piece.offset, self._asking.endpoint),
        )
        if self._damaged[number] >= DAMAGED_AT_MOST:
            raise self._error(number, f"a piece came damaged {DAMAGED_AT_MOST} times from {self._asking.endpoint}")
        self._asking.ask(came.piece)

    def _look_at_others(self, waited_s: float) -> bool:
        """Whether something has changed about what other processes fetch; if nothing does, it is fetched here."""
        others, self._others = self._others, []
        for number in others:
            if self._cache.has(number):
                self._there(number)
            elif waited_s >= OTHERS_S:  # it is stopped, or stuck
                self._asking.ask(self._cache.grid.piece(number))
            elif self._cache.claim(number):  # it has ended
                self._claimed.add(number)
                self._fetch(number)
            else:
                self._others.append(number)
        return len(self._others) < len(others)

    def _there(self, number: int) -> None:
        self._counts["fetch_left_bytes"] -= self._cache.grid.piece(number).bytes
        if self._cache.has(number):
            self._cache.give_up([number])
            self._claimed.discard(number)

    def _some(self) -> int:
        return next(iter(self._numbers.values()))

    def _error(self, number: int, why: str) -> ExpertError:
        layer, expert, role = self._cache.grid.owner(number)
        return ExpertError(layer, expert, f"the weights of its {role} cannot be fetched: {why}")
