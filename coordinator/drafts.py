"""Drafts by prompt lookup: the next ids are guessed to be those that followed when the text last went on like this.

Pure, and advice only: whoever verifies drafts computes the same tokens without them. Each generated token also tells
whether it would have been guessed, drafted or not, so where nothing repeats itself nothing is drafted, and nothing has
to be tried out to notice when that changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

MAX_DRAFTS = 64
"""Of one step and sequence."""
GRAM = 2
"""Ids that must be equal at least for a place to be one where the text went on like this."""
LONGEST = 32
"""Ids before a place that are compared at most: more alike than this, places are equally good."""
CANDIDATES = 8
"""Places that are compared, the latest first."""
MEMORY = 1 / 16
"""Weight of the newest guess in the chance of the next one."""
FIRST_CHANCES = (0.3, 0.3, 0.3, 0.5, 0.7, 0.85, 0.9)
"""Of guesses until experience is had: by the binary digits of the number of ids that are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What may come next."""

    ids: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()
    """Of each id, that it and all before it are right: descending, from 0 to 1."""


NO_DRAFT = Draft()


class Drafter:
    """Guesses how one sequence goes on."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._latest: dict[int, int] = {}  # two ids, packed -> the last place before which they stand
        self._earlier = array("i")  # for each place, the one before it with the same two ids before it, or -1
        self._place = -1  # where the guess is copied from; -1 is nowhere
        self._alike = 0  # how many ids before that place are as those at the end
        self._chances = list(FIRST_CHANCES)

    def __len__(self) -> int:
        """How many ids it knows."""
        return len(self._ids)

    def read(self, ids: Iterable[int]) -> None:
        """Ids of the prompt: they tell nothing about how well the answer can be guessed."""
        for token in ids:
            self._append(token)
        self._look_up()

    def take(self, token: int) -> None:
        """The next generated id; what had been guessed in its place is judged by it."""
        foreseen = self._place >= 0 and self._ids[self._place] == token
        if self._place >= 0:
            digits = _digits(self._alike)
            self._chances[digits] += (foreseen - self._chances[digits]) * MEMORY
        self._append(token)
        if foreseen:
            self._place, self._alike = self._place + 1, self._alike + 1
        else:
            self._look_up()

    def guess(self, limit: int) -> Draft:
        """The next `limit` ids, if there is a place to copy them from; the copy may run into itself."""
        if self._place < 0 or limit < 1:
            return NO_DRAFT
        period = len(self._ids) - self._place
        copied = self._ids[self._place : self._place + limit]
        ids = [copied[index % period] for index in range(limit)]
        chances, chance = [], 1.0
        for index in range(limit):
            chance *= self._chances[_digits(self._alike + index)]
            chances.append(chance)
        return Draft(ids=tuple(ids), chances=tuple(chances))

    def _append(self, token: int) -> None:
        place, earlier = len(self._ids), -1
        if place >= GRAM:
            gram = self._last_gram()
            earlier = self._latest.get(gram, -1)
            self._latest[gram] = place
        self._earlier.append(earlier)
        self._ids.append(token)

    def _look_up(self) -> None:
        """Find the place with most ids before it as they are at the end, the latest of equals."""
        self._place, self._alike = -1, 0
        if len(self._ids) < GRAM:
            return
        place = self._latest.get(self._last_gram(), -1)
        for _ in range(CANDIDATES):
            if place < 0:
                return
            if (alike := self._count_alike(place)) > self._alike:
                self._place, self._alike = place, alike
            place = self._earlier[place]

    def _count_alike(self, place: int) -> int:
        ids, end, count = self._ids, len(self._ids), GRAM
        most = min(place, LONGEST)
        while count < most and ids[place - 1 - count] == ids[end - 1 - count]:
            count += 1
        return count

    def _last_gram(self) -> int:
        return self._ids[-2] << 32 | self._ids[-1]


def _digits(alike: int) -> int:
    return min(alike.bit_length(), len(FIRST_CHANCES) - 1)
