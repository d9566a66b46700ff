"""Every source of experts' bytes, and work that tells whether it has the right ones."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from moe_models import write_model
from open_bank import activations

import native
from expert_worker.bank import ExpertBank
from expert_worker.copy_plan import CopyPlan, plan_copies
from expert_worker.expert_table import ExpertTable
from expert_worker.shared_arena import SharedArena
from expert_worker.sources.copied import CopiedSource
from expert_worker.sources.direct import DirectSource
from expert_worker.sources.mapped import MappedSource
from expert_worker.sources.shared import SharedSource, arena_layout
from expert_worker.sources.source import Source
from protocol.messages import I32, I64, U8

LAYERS, EXPERTS, WIDTH = 3, 8, 64
BLOB = 3 * 2 * 4096
"""That one copy of an expert of the model below takes."""

Opening = Callable[[ExpertTable], Source]


class FixedPlanner:
    """A budget that never changes, and nobody else on the machine."""

    def __init__(self, budget: int | None) -> None:
        self._budget = budget

    def plan(self, sizes: tuple[int, ...], wanted: U8, rank: I32 | None, copied_bytes: int) -> CopyPlan:
        return plan_copies(sizes, wanted, rank, self._budget, available=1 << 30, headroom=0)

    def touched(self, copied_bytes: int) -> None:
        """Nobody is told."""

    def close(self) -> None:
        """Nothing was promised."""


def copied(budget: int | None) -> Opening:
    """Copies of so many bytes, None for all."""
    return lambda table: CopiedSource(table, FixedPlanner(budget))


def shared(table: ExpertTable) -> SharedSource:
    """An arena that nobody else uses."""
    layout = replace(arena_layout(table, "f"), origin=secrets.token_hex(8))
    return SharedSource(table, SharedArena.open(layout))


SOURCES: dict[str, Opening] = {
    "mapped": MappedSource,
    "all copied": copied(None),
    "a third copied": copied(LAYERS * EXPERTS * BLOB // 3),
    "one copied": copied(BLOB),
    "none copied": copied(0),
    "many slots": lambda table: DirectSource(table, 100 * BLOB),
    "few slots": lambda table: DirectSource(table, 9 * BLOB),
    "shared": shared,
    "one slot": lambda table: DirectSource(table, BLOB),
    "no slot": lambda table: DirectSource(table, 0),
}


def small_model(folder: Path, **change: Any) -> Path:
    """A model whose experts are all different."""
    shape: dict[str, Any] = {
        "layers": LAYERS,
        "experts": EXPERTS,
        "experts_used": 2,
        "embd": WIDTH,
        "ff_exp": 32,
        "vocab": 300,
        "heads": 2,
    }
    return write_model(folder / "small.gguf", **(shape | change))


def make_ready(bank: ExpertBank, wanted: U8 | None = None, rank: I32 | None = None) -> None:
    """Assign these experts (all, if None)."""
    wanted = np.ones((LAYERS, EXPERTS), np.uint8) if wanted is None else wanted
    bank.make_room(wanted, None, rank)
    for layer in range(LAYERS):
        for _ in bank.prepare(layer, np.flatnonzero(wanted[layer])):
            pass


def sums_of(bank: ExpertBank, layer: int, experts: list[int], rows: int = 2) -> I64:
    """(rows, WIDTH): what these experts make of fixed rows."""
    expert = np.repeat(np.array(experts, np.int32), rows)
    row = np.tile(np.arange(rows, dtype=np.int32), len(experts))
    sums = np.zeros((rows, WIDTH), np.int64)
    none = np.zeros((0, WIDTH), np.float32)
    weights = np.full(len(expert), 0.5, np.float32)
    bank.run(layer, native.Rows(activations(rows, WIDTH)), expert, row, weights, -1 - row, none, sums)
    return sums
