"""One copy of all experts in shared memory, for all workers of a machine (`shared_arena.py`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import suppress

import numpy as np

from expert_worker.arena_layout import ArenaLayout
from expert_worker.expert_table import ExpertTable
from expert_worker.file_reader import FileReader
from expert_worker.loading import GIB, PIECE_BYTES, Loading
from expert_worker.shared_arena import Phase, SharedArena
from expert_worker.sources.placed import PlacedSource
from expert_worker.sources.source import Experts
from protocol.errors import ArenaError, ChangedExpertError, ExpertError
from protocol.layout import ROLES
from protocol.messages import I32, U8

log = logging.getLogger(__name__)

WAIT_S = 0.05
"""For whoever loads, at one go: beats are due meanwhile."""


def arena_layout(table: ExpertTable, fingerprint: str) -> ArenaLayout:
    """A unit for each matrix of each layer, as it lies in its file."""
    experts = table.layout.experts
    units = tuple(
        (f"{layer}.{role}", size * experts)
        for layer, _ in table.layout.with_experts()
        for role, size in zip(ROLES, table.sizes(layer), strict=True)
    )
    origin = ",".join(f"{file.size}:{file.modified_ns}" for file in table.files.values())
    return ArenaLayout(fingerprint=fingerprint, units=units, origin=origin)


class SharedSource(PlacedSource):
    """The arena, once it is complete; the files' mapping until then, and if it is given up.

    Whoever opened it first loads it, whether anything is assigned yet or not: others may be waiting for it.
    """

    name = "shared"

    def __init__(self, table: ExpertTable, arena: SharedArena, reserved: Callable[[], None] = lambda: None) -> None:
        """Takes over `arena`, whose layout is `arena_layout`; `reserved` is told when all its memory is taken."""
        super().__init__(table)
        self.pages = arena.pages
        """As in `Hello.pages`."""
        self._reserved = reserved
        self._arena: SharedArena | None = arena
        self._layers = [layer for layer, _ in table.layout.with_experts()]
        self._completing = self._complete(arena)

    def prepare(self, layer: int, experts: Experts) -> Generator[None, None, None]:
        """Load the arena, or wait for whoever does, if it is not complete."""
        for _ in self._completing:  # which goes on by itself if this is not taken to its end
            yield

    def settle(self) -> None:
        """Go on with loading, or waiting; and with what was leased when the arena was given up."""
        next(self._completing, None)
        if self._arena is None:
            self._displace_all()

    def check(self, layer: int, experts: I32) -> None:
        """See `Source`."""
        super().check(layer, experts)
        arena = self._arena
        with suppress(ValueError):  # it is being left, and what was read of it was right
            if arena is not None and self.counters.copied_experts and (problem := arena.problem()):
                raise ChangedExpertError(layer, int(experts[0]), problem)

    def shed(self, count: int) -> int:
        """Leave the arena, which goes when all its users have left it: no part of it can."""
        if not count or self._arena is None or not self.counters.copied_experts:
            return 0
        gone = self.counters.copied_bytes
        self._give_up()
        self.counters.shed_bytes += gone
        return gone

    def close(self) -> None:
        """Leave the arena."""
        self._completing.close()
        self._give_up()

    def _complete(self, arena: SharedArena) -> Generator[None, None, None]:
        try:
            if arena.phase is Phase.WAITING and not arena.reserving:
                sizes = arena.loaded_bytes / GIB, arena.layout.bytes / GIB
                log.info("waiting for another worker, which has loaded %.2f of %.2f GiB of the arena", *sizes)
            while arena.phase is Phase.WAITING:
                if not arena.reserving:
                    arena.wait(WAIT_S)
                arena.poll()
                yield
            self._reserved()
            if arena.phase is Phase.OWNER:
                yield from self._load(arena)
                arena.finish()
            for number, layer in enumerate(self._layers):  # at once: nobody finds it half placed
                self._place(layer, [arena.data(3 * number + role) for role in range(3)])
            log.info("experts come from the arena %s now", arena.path)
        except (ArenaError, ExpertError) as error:
            log.warning("experts come from the files, for the arena is of no use: %s", error)
            self._give_up()

    def _load(self, arena: SharedArena) -> Generator[None, None, None]:
        """Read every unit that is missing."""
        loading = Loading("the arena", arena.layout.bytes, self.counters)
        reader = FileReader(self._table, own_pages=False)
        try:
            for number in arena.missing():
                layer, role = self._layers[number // 3], number % 3
                unit = arena.unit_view(number).reshape(self._table.layout.experts, -1)
                piece = max(1, PIECE_BYTES // unit.shape[1])
                for experts in np.split(np.arange(len(unit)), range(piece, len(unit), piece)):
                    outcome = reader.read_role(layer, role, experts, [unit[expert] for expert in experts.tolist()])
                    self._table.check(layer, experts)
                    if len(outcome.failed):
                        raise ExpertError(layer, int(experts[outcome.failed[0]]), "its bytes cannot be read")
                    loading.add(outcome)
                    yield
                arena.mark(number)
        except ExpertError as error:
            arena.fail(str(error))
            raise
        finally:
            reader.close()
        loading.end()

    def _place(self, layer: int, roles: list[U8]) -> None:
        experts = self._table.layout.experts
        views = [role.reshape(experts, -1) for role in roles]
        for expert in range(experts):
            self._table.place(layer, expert, [view[expert] for view in views])
        self.counters.copied_experts += experts
        self.counters.copied_bytes += sum(role.nbytes for role in roles)

    def _give_up(self) -> None:
        """From now on experts come from the files; what is leased goes when it is not any more."""
        self._reserved()
        if self._arena is None:
            return
        arena, self._arena = self._arena, None
        self._displace_all()
        self.counters.copied_experts = self.counters.copied_bytes = 0
        arena.close()

    def _displace_all(self) -> None:
        for layer, expert in np.argwhere(self._table.placed).tolist():
            self._table.displace(layer, expert)
