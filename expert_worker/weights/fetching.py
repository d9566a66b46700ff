"""Brings the weights of assigned experts into a worker's cache, piece by piece, before they are made ready."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterator

from expert_worker.sources.source import Experts
from expert_worker.supply import Supply
from expert_worker.weights.asking import Came, Dial, Patience
from expert_worker.weights.cache import Cache
from expert_worker.weights.givers import Giver, Givers
from expert_worker.weights.place import Place
from protocol.errors import ExpertError
from protocol.messages import MAX_DIGESTS, U8

log = logging.getLogger(__name__)

LOOK_S = 0.05
"""For a piece, before the control thread looks after other things."""
GIVE_UP_S = 60.0
"""Without any piece, before an expert counts as not to be had."""
OTHERS_S = 5.0
"""Another process of this machine may take for pieces that it fetches, without any news; then they are fetched here."""
DAMAGED_AT_MOST = 3
"""Times that a piece may come damaged from beside the coordinator, and pieces that may from somebody else."""


class Fetching(Supply):
    """Of one worker; all of it in its control thread."""

    def __init__(self, cache: Cache, place: Place, fingerprint: str, dial: Dial) -> None:
        """`place`: of the weights process beside the coordinator. Closes `cache` at the end."""
        super().__init__()
        self._cache = cache
        self._place = place
        self._fingerprint = fingerprint
        self._dial = dial
        self._givers: Givers | None = None

    def make_room(self, wanted: U8) -> None:
        """RoomError if the disk has no room for what is not there of these (layers, experts)."""
        needed = self._cache.missing_bytes(wanted)
        self.counts["fetch_left_bytes"] = needed
        self._cache.check_room(self._cache.room_for(wanted))
        if needed:
            log.info("fetching %.1f MB of weights from %s", needed / 1e6, self._place)

    def bring(self, layer: int, experts: Experts) -> Iterator[None]:
        """Fetch what is not there of these, LOOK_S for an item at most. ExpertError or RoomError if that fails."""
        missing = self._cache.missing(layer, experts)
        if not missing:
            return
        began = time.monotonic()
        givers, self._givers = self._givers or Givers(self._place, self._fingerprint, self._dial, began), None
        run = _Run(self._cache, givers, missing, self.counts)
        try:
            for _ in run.steps():
                now = time.monotonic()
                self.counts["fetch_us"] += int((now - began) * 1e6)
                began = now
                yield
            if self.counts["fetch_left_bytes"]:  # the next layer is asked of the same
                self._givers = givers
        finally:  # whatever came is kept, also if the rest is not wanted any more
            if self._givers is None:
                givers.close()
            try:
                self._cache.commit()
            finally:
                run.close()

    def close(self) -> None:
        """Give up the cache."""
        self._cache.close()


class _Run:
    """Some pieces of one layer, until all are there."""

    def __init__(self, cache: Cache, givers: Givers, missing: list[int], counts: dict[str, int]) -> None:
        self._cache = cache
        self._givers = givers
        self._counts = counts
        self._left = deque(missing)
        self._others: list[int] = []
        """Fetched by other processes of this machine."""
        self._numbers = {self._cache.grid.piece(number): number for number in missing}
        self._claimed: set[int] = set()
        self._damaged: Counter[object] = Counter()
        """By piece, of who gives for the coordinator; by giver, of others."""

    def steps(self) -> Iterator[None]:
        """Each does a little; when they end, all pieces are there but for a commit."""
        patience = Patience(time.monotonic())
        while self._left or self._givers.asked or self._others:
            self._ask()
            now = time.monotonic()
            self._left.extend(self._numbers[piece] for piece in self._givers.silent(now))
            heard = self._givers.hear(LOOK_S, now)
            waited_s = patience.look(time.monotonic())
            if heard is not None:
                self._take(*heard)
                patience.news()
            elif not self._givers.asked and not self._left:
                self._cache.commit()  # others wait for what was fetched here
                if self._look_at_others(waited_s):
                    patience.news()
            if waited_s >= GIVE_UP_S and heard is None:
                why = f"nothing has come from {self._givers.place} for {GIVE_UP_S:g} s"
                raise self._error(next(iter(self._numbers.values())), why)
            yield

    def close(self) -> None:
        """Claims of what did not come are given up."""
        self._cache.give_up(self._claimed)

    def _ask(self) -> None:
        """Of everybody, as much as they may be asked for."""
        grid = self._cache.grid
        some = [self._left.popleft() for _ in range(min(len(self._left), 2 * MAX_DIGESTS))]
        pieces = [(*grid.owner(number)[:2], grid.piece(number)) for number in some]
        self._givers.want_digests(pieces)
        kept = []
        for number, (layer, expert, piece) in zip(some, pieces, strict=True):
            giver = None if self._givers.full else self._givers.find(layer, expert, piece)
            if giver is None:
                kept.append(number)
            elif not self._cache.claim(number):
                self._others.append(number)
            elif self._cache.has(number):  # another process has fetched it since we looked
                self._cache.give_up([number])
                self._count_down(number)
            else:
                self._claimed.add(number)
                self._givers.ask(giver, piece)
        self._left.extendleft(reversed(kept))

    def _take(self, giver: Giver, came: Came) -> None:
        number = self._numbers[came.piece]
        if came.data is not None:
            self._cache.write(number, came.data)
            self._counts["fetched_bytes"] += came.piece.bytes
            if not self._givers.is_first(giver):
                self._counts["fetched_from_caches"] += came.piece.bytes
            self._count_down(number)
            return
        if came.refused:
            if self._givers.is_first(giver):
                raise self._error(number, f"{giver.asking.place} has not got it: {came.refused}")
            log.debug("%s has not got a piece: %s", giver.asking.place, came.refused)
        else:
            self._judge_damage(number, giver, came)
        giver.lacks.add(came.piece)
        self._left.appendleft(number)

    def _judge_damage(self, number: int, giver: Giver, came: Came) -> None:
        self._counts["fetched_damaged"] += 1
        layer, expert, role = self._cache.grid.owner(number)
        log.warning(
            "layer %d, expert %d: a piece of its %s (%d bytes at %d) came damaged from %s",
            *(layer, expert, role, came.piece.bytes, came.piece.offset, giver.asking.place),
        )
        first = self._givers.is_first(giver)
        self._damaged[number if first else giver] += 1
        if self._damaged[number if first else giver] < DAMAGED_AT_MOST:
            return
        if first:
            raise self._error(number, f"a piece came damaged {DAMAGED_AT_MOST} times from {giver.asking.place}")
        log.warning("%s gives damaged pieces, and is asked for no more", giver.asking.place)
        self._left.extend(self._numbers[piece] for piece in self._givers.drop(giver))

    def _look_at_others(self, waited_s: float) -> bool:
        """Whether something has changed about what other processes fetch; if nothing does, it is fetched here."""
        others, self._others = self._others, []
        for number in others:
            if self._cache.has(number):
                self._count_down(number)
            elif waited_s >= OTHERS_S:  # it is stopped, or stuck
                self._givers.ask(self._givers.first, self._cache.grid.piece(number))
            elif self._cache.claim(number):  # it has ended
                self._claimed.add(number)
                self._left.append(number)
            else:
                self._others.append(number)
        return len(self._others) < len(others)

    def _count_down(self, number: int) -> None:
        left = self._counts["fetch_left_bytes"] - self._cache.grid.piece(number).bytes
        self._counts["fetch_left_bytes"] = max(0, left)

    def _error(self, number: int, why: str) -> ExpertError:
        layer, expert, role = self._cache.grid.owner(number)
        return ExpertError(layer, expert, f"the weights of its {role} cannot be fetched: {why}")
