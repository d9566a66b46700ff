"""A worker's bank, with the source that it was told to have or that suits it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import native
from expert_worker.bank import ExpertBank
from expert_worker.copy_plan import Budget
from expert_worker.expert_table import ExpertTable
from expert_worker.memory_plan import MemoryPlanner
from expert_worker.sources.choice import Asked, Choice, Facts, choose
from expert_worker.sources.copied import CopiedSource
from expert_worker.sources.direct import DirectSource
from expert_worker.sources.mapped import MappedSource
from expert_worker.sources.source import Source
from protocol.host_memory import host_memory
from protocol.model import Model
from protocol.pages import pages_of
from protocol.stock import Stock

log = logging.getLogger(__name__)


@contextmanager
def open_bank(model: Model, threads: int, asked: Asked) -> Iterator[tuple[ExpertBank, str]]:
    """The bank, and the pages that it computes from (`Hello.pages`)."""
    choice = choose(asked, facts_of(model))
    log.info("experts come from: %s (%s)", choice.source, choice.why)
    with ExpertBank(model, native.Pool(threads), lambda table: _source(table, choice)) as bank:
        yield bank, pages_of(model) if choice.source == "mapped" else ""


def facts_of(model: Model) -> Facts:
    """What a choice is made from."""
    memory = host_memory()
    return Facts(expert_bytes=Stock.of(model.layout).bytes, total=memory.total, available=memory.available)


def _source(table: ExpertTable, choice: Choice) -> Source:
    match choice.source:
        case "mapped":
            return MappedSource(table)
        case "direct":
            return DirectSource(table, choice.ram or 0)
        case "copies":
            budget: Budget = "auto" if choice.ram is None else choice.ram
            return CopiedSource(table, MemoryPlanner(budget, choice.headroom))
        case "arena":
            return CopiedSource(table, MemoryPlanner(None, choice.headroom), name="arena")
        case _:
            raise AssertionError(choice.source)
