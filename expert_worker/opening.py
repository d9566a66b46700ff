"""A worker's bank, with the source that it was told to have or that suits it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import native
from expert_worker.arena_file import sweep
from expert_worker.bank import ExpertBank
from expert_worker.copies import bytes_for
from expert_worker.copy_plan import Budget
from expert_worker.direct_probe import why_not_direct
from expert_worker.expert_table import ExpertTable
from expert_worker.locking import lock
from expert_worker.memory_plan import LEDGER_S, MemoryPlanner
from expert_worker.shared_arena import FOLDER, SharedArena
from expert_worker.siblings import ALONE, Siblings
from expert_worker.sources.choice import Asked, Choice, Facts, choose
from expert_worker.sources.copied import CopiedSource
from expert_worker.sources.direct import DirectSource
from expert_worker.sources.mapped import MappedSource
from expert_worker.sources.shared import SharedSource, arena_layout
from expert_worker.sources.source import Source
from expert_worker.supply import Supply
from protocol.errors import ArenaError, ConfigError
from protocol.host_ledger import planning
from protocol.host_memory import host_memory
from protocol.model import Model
from protocol.pages import pages_of
from protocol.promises import LedgerError
from protocol.stock import Stock

log = logging.getLogger(__name__)


@contextmanager
def open_bank(
    model: Model, threads: int, asked: Asked, siblings: Siblings = ALONE, supply: Supply | None = None
) -> Iterator[tuple[ExpertBank, str]]:
    """The bank, and the pages that it computes from (`Hello.pages`). ConfigError for a source that cannot be had.

    `supply` brings weights that are not in the model's files yet.
    """
    if supply is not None and asked.source == "shared":
        raise ConfigError(
            "a shared arena has all experts at once, and a cache those that are assigned; take another source"
        )
    for left in sweep(FOLDER):
        log.info("removed %s, which processes that were killed had left", left)
    choice = choose(asked, facts_of(model, siblings))
    log.info("experts come from: %s (%s)", choice.source, choice.why)
    with ExpertBank(model, native.Pool(threads), lambda table: _source(table, model, choice, siblings), supply) as bank:
        match bank.source:
            case MappedSource():
                yield bank, pages_of(model)
            case SharedSource(pages=pages):
                yield bank, pages
            case _:
                yield bank, ""


def memory_share(model: Model, asked: Asked, siblings: Siblings = ALONE) -> int:
    """Bytes of experts that there is memory for, a fair share of the machine's (`Hello.memory`); -1 if nobody knows.

    ConfigError as of `open_bank`.
    """
    room = choose(asked, facts_of(model, siblings)).room
    return -1 if room is None else room // siblings.here


def facts_of(model: Model, siblings: Siblings = ALONE) -> Facts:
    """What a choice is made from."""
    memory = host_memory()
    known = memory.available if not memory.unknown else None
    return Facts(
        expert_bytes=Stock.of(model.layout).bytes,
        total=memory.total or None,
        available=known,
        part=siblings.part,
        why_not_direct=why_not_direct(model.files),
    )


def _source(table: ExpertTable, model: Model, choice: Choice, siblings: Siblings) -> Source:
    budget: Budget = "auto" if choice.ram is None else choice.ram
    match choice.source:
        case "mapped":
            return MappedSource(table, room=choice.room)
        case "direct":
            planner = MemoryPlanner(budget, choice.headroom, siblings)
            return DirectSource(table, planner.slots(_bytes_of_all(table)), planner)
        case "copies":
            return CopiedSource(table, MemoryPlanner(budget, choice.headroom, siblings), lock=lock)
        case "arena":
            return CopiedSource(table, MemoryPlanner(None, choice.headroom), name="arena", lock=lock)
        case _:
            return _shared(table, model, choice, siblings)


def _bytes_of_all(table: ExpertTable) -> int:
    """That copies of all experts of the model take."""
    return sum(bytes_for(table.sizes(layer)) for layer, _ in table.layout.with_experts()) * table.layout.experts


def _shared(table: ExpertTable, model: Model, choice: Choice, siblings: Siblings) -> Source:
    """The machine's arena, or copies of this process's own where it cannot be had."""
    if model.there is not None:
        raise ConfigError(f"{model.files.path}: a share of a model has not all that workers of a machine may need")
    try:
        return _join_arena(table, model, choice.headroom)
    except (ArenaError, LedgerError) as error:
        log.warning("copies of this process's own instead of a shared arena: %s", error)
        return CopiedSource(table, MemoryPlanner("auto", choice.headroom, siblings), lock=lock)


def _join_arena(table: ExpertTable, model: Model, headroom: int) -> SharedSource:
    layout = arena_layout(table, model.fingerprint)
    with planning(deadline_s=LEDGER_S) as ledger:  # so that one alone finds that there is none, and promises its bytes
        arena = SharedArena.open(layout, room=lambda: max(0, ledger.available - headroom))
        pledge = ledger.promise(layout.bytes if arena.reserving else 0)
    return SharedSource(table, arena, pledge.withdraw)
