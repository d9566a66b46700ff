"""Everybody who gives a worker pieces: the process beside the coordinator, and other machines' caches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from expert_worker.weights.asking import Asking, Came, Dial, Patience
from expert_worker.weights.grid import Piece
from expert_worker.weights.place import Place
from protocol.bulk import WINDOW
from protocol.errors import ConfigError
from protocol.holder.serve import Connection
from protocol.messages import MAX_DIGESTS, U8, AskDigests, AskHolders, Digests, Holders

log = logging.getLogger(__name__)

SILENT_S = 5.0
"""Without any piece that was asked for: who gives for the coordinator is asked again, others no more."""
SLOW_S = 10.0
"""In which another that always has some to give gives fewer than WINDOW pieces: then it is asked no more, either."""
REFRESH_S = 5.0
"""After so long it is asked again who else gives, and what."""
USELESS_AT_MOST = 16
"""Others that were given up, after which no more are asked: who names them again and again may do so to hold us up."""
NEXT_S = 0.005
"""For whoever is asked first, before the others are looked at."""


@dataclass(slots=True, kw_only=True, eq=False)
class Giver:
    """One of them."""

    asking: Asking
    has: U8 | None
    """(layers, experts): 1 for what it says it has; None: everything."""
    patience: Patience
    period: Patience
    """Since `came` was 0."""
    came: int = 0
    """Pieces, while there always were some to come."""
    lacks: set[Piece] = field(default_factory=set)
    """What it turned out not to have, or damaged."""
    shut: str = ""
    """Why it does not let us in, if it does not."""

    def can_give(self, layer: int, expert: int, piece: Piece) -> bool:
        """Whether it is worth asking."""
        if self.has is None:
            return True
        layers, experts = self.has.shape
        return layer < layers and expert < experts and bool(self.has[layer, expert]) and piece not in self.lacks

    def begin(self, now: float) -> None:
        """It is waited for from now on, and nothing has come yet."""
        for one in (self.patience, self.period):
            one.look(now)
            one.news()
        self.came = 0

    def is_slow(self, now: float) -> bool:
        """Whether a whole period has passed, and few pieces have come."""
        if self.period.look(now) < SLOW_S:
            return False
        few = self.came < WINDOW
        self.period.news()
        self.came = 0
        return few


class Givers:
    """Of one worker, for a while. What others give is compared with digests of the one beside the coordinator."""

    def __init__(self, place: Place, fingerprint: str, dial: Dial, now: float) -> None:
        self.place = place
        """Where weights are given beside the coordinator."""
        self._fingerprint = fingerprint
        self._dial = dial
        self.first = self._giver(place, None, now)
        """The one beside the coordinator."""
        self._others: list[Giver] = []
        self._line: Connection = dial(place)  # for what is no piece
        self._asked_about_others = Patience(now)
        self._ask_about_others()
        self._dropped: set[Place] = set()
        self._digests: dict[tuple[int, int], bytes] = {}
        self._questions: set[tuple[int, int]] = set()

    @property
    def asked(self) -> int:
        """Pieces that have not come."""
        return sum(giver.asking.asked for giver in self._all())

    @property
    def full(self) -> bool:
        """Whether nobody may be asked for more."""
        return not any(giver.asking.has_room for giver in self._all())

    def find(self, layer: int, expert: int, piece: Piece) -> Giver | None:
        """Who is to be asked for it; None if all who have it are busy, or it is not known yet what it should be.

        Others come first: what they have need not come from beside the coordinator.
        """
        able = [giver for giver in self._others if giver.can_give(layer, expert, piece)]
        if able and piece[:2] not in self._digests:
            return None
        giver = min(able, key=lambda giver: giver.asking.asked) if able else self.first
        return giver if giver.asking.has_room else None

    def ask(self, giver: Giver, piece: Piece) -> None:
        """For one more."""
        giver.asking.ask(piece, b"" if giver is self.first else self._digests[piece[:2]])

    def want_digests(self, pieces: list[tuple[int, int, Piece]]) -> None:
        """Of these (layer, expert, piece), if there is anybody to get them from but the first."""
        new = [
            piece
            for layer, expert, piece in pieces
            if piece[:2] not in self._digests
            and piece[:2] not in self._questions
            and any(giver.can_give(layer, expert, piece) for giver in self._others)
        ]
        if self._questions:  # one question at a time: whoever answers it reads all these pieces
            return
        some = [piece for piece in new if piece.file == new[0].file][:MAX_DIGESTS]
        if some:
            self._questions = {piece[:2] for piece in some}
            offsets, counts = (np.array([piece[part] for piece in some], np.int64) for part in (1, 2))
            self._line.send(AskDigests(fingerprint=self._fingerprint, file=some[0].file, offset=offsets, bytes=counts))

    def hear(self, timeout_s: float, now: float) -> tuple[Giver, Came] | None:
        """The next piece of anybody, or None if there is none in time."""
        self._hear_of_others(now)
        waited = [giver for giver in self._all() if giver.asking.asked]
        for giver in waited:
            if (came := self._hear(giver, 0)) is not None:
                return giver, came
        first = waited[0] if waited else self.first
        came = self._hear(first, timeout_s if len(waited) < 2 and not self._questions else NEXT_S)
        return None if came is None else (first, came)

    def _hear(self, giver: Giver, timeout_s: float) -> Came | None:
        try:
            came = giver.asking.hear(timeout_s)
        except ConfigError as error:
            if giver is self.first:
                raise
            giver.shut = str(error)
            return None
        if came is not None:
            giver.patience.news()
            giver.came += 1
        return came

    def silent(self, now: float) -> Iterator[Piece]:
        """Give up whoever was silent for long, gives little or does not let us in, but the first.

        What they were asked for is to be asked of others.
        """
        if self._asked_about_others.look(now) >= REFRESH_S:
            self._ask_about_others()
        for giver in self._all():
            if giver.shut:
                log.warning("%s is asked no more: %s", giver.asking.place, giver.shut)
                yield from self.drop(giver)
            elif not giver.asking.asked and not (giver is self.first and self._questions):
                giver.begin(now)
            elif giver.patience.look(now) >= SILENT_S:
                giver.patience.news()
                if giver is self.first:
                    giver.asking.ask_again()
                    self._questions = set()
                    self._line.close(0)
                    self._line = self._dial(self.place)
                    self._ask_about_others()
                else:
                    log.warning("%s gives nothing any more; others are asked", giver.asking.place)
                    yield from self.drop(giver)
            elif giver is not self.first and giver.is_slow(now):
                log.warning("%s gives slowly; others are asked", giver.asking.place)
                yield from self.drop(giver)

    def drop(self, giver: Giver) -> list[Piece]:
        """Ask another one no more; returns what it was asked for."""
        self._others.remove(giver)
        self._dropped.add(giver.asking.place)
        giver.asking.close()
        return giver.asking.pieces()

    def is_first(self, giver: Giver) -> bool:
        """Whether it is the one beside the coordinator, behind which there is nobody else to ask."""
        return giver is self.first

    def close(self) -> None:
        """All connections."""
        for giver in self._all():
            giver.asking.close()
        self._line.close(0)

    def _all(self) -> list[Giver]:
        return [self.first, *self._others]

    def _ask_about_others(self) -> None:
        self._asked_about_others.news()
        self._line.send(AskHolders(fingerprint=self._fingerprint))

    def _hear_of_others(self, now: float) -> None:
        match self._line.receive(0):
            case Holders() as holders:
                known = {giver.asking.place: giver for giver in self._others}
                for place, have in zip(map(Place, holders.endpoints, holders.keys), holders.have, strict=True):
                    if place in known:
                        known[place].has = have
                    elif place not in self._dropped and len(self._dropped) < USELESS_AT_MOST:
                        self._add(place, have, now)
            case Digests() as digests:
                for offset, digest in zip(digests.offset.tolist(), digests.sha256, strict=True):
                    self._digests[digests.file, offset] = digest.tobytes()
                self._questions = set()

    def _add(self, place: Place, have: U8, now: float) -> None:
        try:
            giver = self._giver(place, have, now)
        except ConfigError as error:
            self._dropped.add(place)
            log.warning("%s gives weights too, and is not asked: %s", place, error)
            return
        log.info("%s gives weights too: %d experts", place, int(have.sum()))
        self._others.append(giver)

    def _giver(self, place: Place, has: U8 | None, now: float) -> Giver:
        """ConfigError if it cannot be dialled."""
        asking = Asking(place, self._fingerprint, self._dial)
        return Giver(asking=asking, has=has, patience=Patience(now), period=Patience(now))
