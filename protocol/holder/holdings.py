"""The sets of experts that a holder was assigned, and how it makes them ready."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ExpertError, RoomError
from protocol.messages import I32, MAX_REASON, NO_EXPERTS, U8, Assign, AssignFailed, AssignProgress, AssignReady

log = logging.getLogger(__name__)


class Holdings:
    """Sets of experts by placement version. The control thread adds and changes, the compute loop looks up."""

    def __init__(self, before: U8 = NO_EXPERTS) -> None:
        """`before` (layers, experts), or (0, 0), is what is held under no version, until the first is made ready."""
        self.residency = 0
        """How often what is held has changed, under any version."""
        self._before = before
        self._sets: dict[int, U8] = {}  # replaced, never changed: the other thread may be reading it

    def add(self, assign: Assign) -> None:
        """From now on `assign.held` is what its version means; only the one in force is kept beside it."""
        kept = {version: held for version, held in self._sets.items() if version == assign.in_force}
        self._sets = {**kept, assign.placement: assign.held}
        self.residency += 1

    def hold(self, placement: int, layer: int, expert: int) -> None:
        """One more under a version that is known."""
        self._change(placement, layer, expert, 1)

    def let_go(self, placement: int, layer: int, expert: int) -> None:
        """One less."""
        self._change(placement, layer, expert, 0)

    @property
    def held(self) -> U8:
        """(layers, experts): 1 for those that any version has held, or else those of before; (0, 0) if none."""
        return np.bitwise_or.reduce(list(self._sets.values())) if self._sets else self._before

    def any_holds(self, layer: int) -> U8:
        """(experts,): 1 for those of a layer that one version or another has held; empty while there is none."""
        held = [one[layer] for one in self._sets.values() if layer < len(one)]
        return np.bitwise_or.reduce(held) if held else np.empty(0, np.uint8)

    def get(self, placement: int) -> U8 | None:
        """(layers, experts): 1 where this version has the expert held. None if the version is unknown."""
        return self._sets.get(placement)

    def _change(self, placement: int, layer: int, expert: int, to: int) -> None:
        changed = self._sets[placement].copy()
        changed[layer, expert] = to
        self._sets = {**self._sets, placement: changed}
        self.residency += 1


class Preparer(Protocol):
    """What makes experts ready, wherever they lie."""

    def make_room(self, wanted: U8, in_force: U8 | None, rank: I32 | None) -> None:
        """Give up experts that are in neither of these sets (layers, experts), or not `wanted` if both do not fit.

        `rank` (layers, experts) is 0 for the expert that is expected to be used most, and so on; None if nobody knows:
        `protocol.ranking.by_rank` has an order then, too. RoomError if `wanted` alone does not fit.
        """

    def prepare(self, layer: int, experts: NDArray[np.integer[Any]]) -> Iterator[None]:
        """Make experts of a layer ready, a piece for each item taken: disks are slow, and beats are due.

        ExpertError if that cannot be.
        """

    def stage(self, layer: int, leaves: int, comes: int) -> Iterator[None]:
        """Make `comes` ready, which is to take the place of `leaves`, in pieces as `prepare` does.

        Both are ready then, until one of them is discarded. ExpertError or RoomError if that cannot be.
        """

    def discard(self, layer: int, expert: int) -> None:
        """This one of an exchange will not be run any more: give up what was made ready of it."""

    def tend(self, now: float) -> None:
        """Called again and again, `now` in seconds of any clock: look after what is held, for a moment."""


def prepare(
    assign: Assign, shape: tuple[int, int], bank: Preparer, holdings: Holdings
) -> Iterator[AssignProgress | AssignReady | AssignFailed | None]:
    """Make ready what is assigned, a piece for each item taken: a message, or None within a layer.

    The last message says how it ended. `shape` is (layers, experts) of the model.
    """
    if assign.held.shape != shape:
        reason = f"experts of {assign.held.shape} (layers, experts) assigned, the model has {shape}"
        yield _failed(assign, reason)
        return
    layers = shape[0]
    try:
        rank = assign.rank if assign.rank.size else None
        bank.make_room(assign.held, holdings.get(assign.in_force), rank)
        for layer in range(layers):
            yield from bank.prepare(layer, np.flatnonzero(assign.held[layer]))
            if layer < layers - 1:
                yield AssignProgress(placement=assign.placement, done=layer + 1, total=layers)
    except (ExpertError, RoomError) as error:
        yield _failed(assign, str(error))
        return
    holdings.add(assign)
    yield AssignProgress(placement=assign.placement, done=layers, total=layers)
    yield AssignReady(placement=assign.placement, experts=int(np.count_nonzero(assign.held)))


def _failed(assign: Assign, reason: str) -> AssignFailed:
    log.warning("placement %d cannot be held: %s", assign.placement, reason)
    return AssignFailed(placement=assign.placement, reason=reason[:MAX_REASON])
