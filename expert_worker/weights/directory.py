"""Who else gives a model's pieces, as far as they said so lately. Pure; times are of any one clock, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expert_worker.weights.place import Place
from protocol.endpoints import check_named
from protocol.errors import ConfigError
from protocol.messages import U8, Holders, OfferPieces

LATELY_S = 10.0
"""An offer that was not made again for so long counts no more."""
MOST = 64
"""Offers that are kept."""
NAMED = 8
"""Named to one worker: others are named to the next one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Offer:
    have: U8
    at: float


class Directory:
    """For one model, of so many (layers, experts)."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._offers: dict[Place, _Offer] = {}
        self._turn = 0

    def take(self, offer: OfferPieces, now: float) -> str:
        """Keep an offer; why not, if it cannot be kept."""
        if offer.have.shape != self._shape:
            return f"experts of {offer.have.shape} (layers, experts) are offered, the model has {self._shape}"
        try:
            check_named(offer.endpoint, keyed=bool(offer.key))
        except ConfigError as error:
            return str(error)
        self._forget(now)
        place = Place(offer.endpoint, offer.key)  # nobody takes another's by offering his endpoint
        if place not in self._offers and len(self._offers) >= MOST:
            return f"{MOST} others give already"
        self._offers[place] = _Offer(have=offer.have, at=now)
        return ""

    def holders(self, now: float) -> Holders:
        """Some of those that have anything, others each time."""
        self._forget(now)
        places = [place for place, offer in self._offers.items() if offer.have.any()]
        if len(places) > NAMED:
            self._turn = (self._turn + NAMED) % len(places)
            places = (places[self._turn :] + places[: self._turn])[:NAMED]
        have = np.array([self._offers[place].have for place in places], np.uint8)
        return Holders(
            endpoints=[place.endpoint for place in places],
            keys=[place.key for place in places],
            have=have.reshape(len(places), *self._shape),
        )

    def _forget(self, now: float) -> None:
        self._offers = {place: offer for place, offer in self._offers.items() if now - offer.at < LATELY_S}
