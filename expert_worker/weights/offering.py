"""Tells the weights process beside the coordinator, again and again, what a cache of this machine gives too."""

from __future__ import annotations

from expert_worker.weights.cache import Cache
from expert_worker.weights.place import Place
from protocol.errors import ModelError
from protocol.holder.serve import Connection
from protocol.messages import OfferPieces, PieceFailed

AGAIN_S = 2.0


class Offering:
    """Of one cache. Times are readings of any one clock, in seconds."""

    def __init__(self, line: Connection, fingerprint: str, place: Place, cache: Cache) -> None:
        """`line` goes to the process beside the coordinator; `place` is where pieces are given."""
        self._line = line
        self._fingerprint = fingerprint
        self._place = place
        self._cache = cache
        self._next_at: float | None = None

    def tick(self, now: float) -> None:
        """ModelError if the offer is not wanted: another model is used by now, for example."""
        answer = self._line.receive(0)
        if isinstance(answer, PieceFailed):
            raise ModelError(f"what is given at {self._place} is not wanted: {answer.reason}")
        if self._next_at is None or now >= self._next_at:
            self._next_at = now + AGAIN_S
            where = {"endpoint": self._place.endpoint, "key": self._place.key}
            self._line.send(OfferPieces(fingerprint=self._fingerprint, have=self._cache.there(), **where))

    def close(self) -> None:
        """It will be forgotten in a while."""
        self._line.close(0)
