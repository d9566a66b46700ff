"""What one conversation consists of inside the engine: the ids computed so far and their KV cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Cache(Protocol):
    """Keys and values of one sequence. A dense half makes them, and knows only its own."""

    @property
    def capacity(self) -> int:
        """Positions that it has room for."""


class TokenSequence:
    """The ids whose keys and values are in the cache, in order. Only the engine makes and advances one,
    but for drafts, which whoever samples finds right."""

    def __init__(self, cache: Cache, last_step: int = -1) -> None:
        """`cache` must be empty; its capacity bounds the sequence."""
        self.ids: list[int] = []
        self.cache = cache
        self.last_step = last_step
        """The step that last computed rows of this sequence; before the first, the last step before it came."""

    @property
    def position(self) -> int:
        """Where the next id stands."""
        return len(self.ids)

    @property
    def room(self) -> int:
        """How many ids fit in still."""
        return self.cache.capacity - len(self.ids)

    def advance(self, ids: Iterable[int], step: int) -> None:
        """Note that `step` has computed `ids`."""
        self.ids.extend(int(token) for token in ids)
        self.last_step = step

    def keep(self, draft: int) -> None:
        """The next draft of the last step was right: its keys and values stay. All others are overwritten later."""
        self.ids.append(draft)
