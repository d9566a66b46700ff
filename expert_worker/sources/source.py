"""What every source of experts' bytes can be asked, and what it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from expert_worker.expert_table import ExpertTable
from protocol.messages import I32, U8

Experts = NDArray[np.integer[Any]]
Displaced = Callable[[int, int, int], None]
WARM_WAIT_S = 1.0
"""For messages that wait for bytes, before a hint is given up."""


@dataclass(slots=True, kw_only=True)
class Counters:
    """Since the process began. Experts are counted once for each message that needs them."""

    copy_hits: int = 0
    """Computed from a copy in memory."""
    cache_hits: int = 0
    """Computed from the files' mapping, whose pages were all in memory."""
    file_reads: int = 0
    """Had to be read first."""
    file_read_bytes: int = 0
    file_read_us: int = 0
    """That the compute loop waited for these."""
    fallbacks: int = 0
    """Direct reads that failed or found no slot: the mapping was used."""
    loaded_bytes: int = 0
    """Copied when experts were assigned."""
    load_us: int = 0
    copied_experts: int = 0
    """In memory now, as copies of this process or of all of the machine."""
    copied_bytes: int = 0
    locked_bytes: int = 0
    """Of these, what the kernel may not take."""
    shed_bytes: int = 0
    """Copies given up because memory was short."""

    def as_dict(self) -> dict[str, int]:
        """By name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Source:
    """Where experts' bytes come from. None of it changes a bit of an answer.

    The compute loop calls `fetch`, `release` and `check`; whoever hears hints `missing` and `warm`; the control thread
    the others, of which most have nothing to do where nothing is copied. Each may come at any time.
    """

    name: str

    def __init__(self, table: ExpertTable, counters: Counters | None = None) -> None:
        """`counters` of whoever has this source for what it lacks itself."""
        self.counters = counters or Counters()
        self._table = table

    def make_room(self, wanted: U8, rank: I32 | None) -> None:
        """These (layers, experts) will be asked for, the lowest rank most; give up what is not among them.

        RoomError if they cannot be held as this source is to hold them.
        """

    def prepare(self, layer: int, experts: Experts) -> Iterator[None]:
        """Make these ready; each item taken does a piece that lasts a moment. ExpertError if that cannot be."""
        return iter(())

    def exchange(self, layer: int, leaves: int, comes: int) -> None:
        """`comes` is to have what `leaves` has, a copy or none, when it is prepared. Both have it until a `discard`."""

    def discard(self, layer: int, expert: int) -> None:
        """It will not be asked for any more, after an `exchange`: give up its copy, now or when it is released."""

    def settle(self) -> None:
        """Called again and again: go on with what could not be done at once."""

    def fetch(self, layer: int, experts: I32) -> U8 | None:
        """The kernels are about to compute these, ascending, some more than once: bring them all, at once.

        They stay where they are until `release`. Returns 1 for each, without repetitions, that had to be waited for;
        None if none had, as far as is known.
        """
        raise NotImplementedError

    def release(self) -> None:
        """The kernels have done."""
        self._table.release()

    def check(self, layer: int, experts: I32) -> None:
        """ChangedExpertError, which names the first of these, if what they were computed from is not what it was.

        What was read since then is worth nothing.
        """
        raise NotImplementedError

    def missing(self, layer: int, experts: I32) -> U8:
        """(n,): 1 for those that `fetch` would have to bring, but for those that are on their way."""
        raise NotImplementedError

    def displacing(self, told: Displaced) -> None:
        """Call `told(layer, expert, by_layer)` for whatever makes room for a hint."""

    def warm(self, layer: int, experts: Experts) -> None:
        """These may be needed soon: bring them while no message waits for others; returns when that is done."""
        raise NotImplementedError

    def shed(self, count: int) -> int:
        """Give up copies of `count` bytes, those used least first; how many bytes that were."""
        return 0

    def grow(self, count: int) -> None:
        """There is room for `count` bytes again: have some of what was given up back, for a moment's work."""

    def close(self) -> None:
        """Give up everything; may be called again."""


class Account(Protocol):
    """Keeps the others of this machine from planning with memory that this process is going to take."""

    def touched(self, copied_bytes: int) -> None:
        """So much of what was planned is in use now, and no longer to be counted as promised."""

    def close(self) -> None:
        """All of it is given up."""


def distinct(experts: I32) -> I32:
    """Each of these, ascending, once."""
    if len(experts) < 2:
        return experts
    chosen = np.empty(len(experts), np.bool_)
    chosen[0] = True
    np.not_equal(experts[1:], experts[:-1], out=chosen[1:])
    return experts if chosen.all() else experts[chosen]
