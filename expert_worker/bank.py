"""A set of experts that can be run: a model's weights, wherever a source has them, and the checks around the kernels.

Knows no sockets and no placement; the coordinator's local holder is this same class.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import native
from expert_worker.expert_table import ExpertTable
from expert_worker.hints import HintBook
from expert_worker.sources.mapped import MappedSource
from expert_worker.sources.source import Source, distinct
from expert_worker.supply import Supply
from expert_worker.tending import Tending
from protocol.errors import ExpertError
from protocol.holder.refusals import check_ids, check_there, in_words, layer_of, rows_of
from protocol.messages import F32, I32, I64, LOOKAHEAD_ROWS, U8, RunExperts, Sums
from protocol.model import Model

log = logging.getLogger(__name__)

PIECE = 2
"""Experts of a hint that are read at one go: a message that comes meanwhile waits for these at most."""


class ExpertBank:
    """All experts of one model, computed from wherever its source has them."""

    def __init__(
        self,
        model: Model,
        pool: native.Pool,
        source: Callable[[ExpertTable], Source] = MappedSource,
        supply: Supply | None = None,
    ) -> None:
        """`model` stays open for as long as the bank is used; `supply` brings weights that are not in its files."""
        self.layout = model.layout
        self._there = model.there
        self._chosen = model.geometry.experts_used
        self._pool = pool
        self.table = ExpertTable(model)
        self._source = source(self.table)
        self._supply = supply or Supply()
        self._tending = Tending(self._source)
        self.hints = HintBook()
        self._asked_at = 0.0
        self._source.displacing(self.hints.displaced)

    @property
    def source(self) -> Source:
        """Where the experts come from."""
        return self._source

    @property
    def source_name(self) -> str:
        """Where the experts come from, in a word."""
        return self._source.name

    def counts(self) -> dict[str, int]:
        """See `Counters`, `Supply.counts`, and `HintBook.stats`."""
        counted = self._source.counters.as_dict() | self._supply.counts
        return counted | {f"hints_{name}": n for name, n in self.hints.stats().items()}

    def tend(self, now: float) -> None:
        """Give up copies if memory has become short, which it looks at once a second, and what is left of discards."""
        self._tending.tend(now)
        self._source.settle()

    def run(
        self,
        layer: int,
        rows: native.Rows,
        entry_expert: I32,
        entry_row: I32,
        entry_weight: F32,
        entry_slot: I32,
        singles: F32,
        sums: I64,
    ) -> None:
        """Compute every entry, times its weight: into `singles[slot]`, or added to `sums[-1 - slot]` where that is < 0.

        Entries (n,) ascend by expert; singles (any, width), sums (any, width). ExpertError names the expert that is out
        of range, gives a number out of range, or lies in a file that has changed; singles and sums are then of no use.
        """
        check_ids(self.layout, layer, entry_expert)
        try:
            self._source.fetch(layer, entry_expert)
            native.run_experts(
                self._pool,
                *self.table.matrices(layer),
                rows,
                entry_expert,
                entry_row,
                entry_weight,
                entry_slot,
                singles,
                sums,
            )
        except (native.EntryRangeError, native.NonFiniteError) as error:
            self._source.check(layer, entry_expert)  # if it has changed, that is why
            raise in_words(layer, error, entry_expert) from None
        finally:
            self._source.release()
        self._source.check(layer, entry_expert)

    def answer(self, work: RunExperts, wait_us: int) -> Sums:
        """See `protocol.holder.answer.Runner`: from the message to the message in one native call."""
        layer, experts = work.layer, work.entry_expert
        if layer not in self.table:
            layer_of(self.layout, layer)  # says why
        try:
            self._fetch(work)
            reply = native.answer_call(Sums, work, self._pool, *self.table.matrices(layer), wait_us)
        except (native.EntryRangeError, native.NonFiniteError) as error:
            self._source.check(layer, experts)  # if it has changed, that is why
            raise in_words(layer, error, experts) from None
        except ValueError as error:
            raise self._refusal(work, error) from None
        finally:
            self._source.release()
        self._source.check(layer, experts)
        return reply

    def warm(self, layer: int, experts: I32, step: int) -> None:
        """These (n,) may be needed soon, for a step: have them brought if that is worth it. From any thread; advice."""
        if not self.hints.trial.on:
            self.hints.refuse(layer, len(experts))
        elif len(experts) and layer in self.table:
            missing = self._source.missing(layer, experts)
            wanted = self.hints.want(layer, experts, missing, step, time.monotonic())
            for start in range(0, len(wanted), PIECE):
                if self.hints.is_past(layer, step):
                    return
                self._source.warm(layer, wanted[start : start + PIECE])

    def make_room(self, wanted: U8, in_force: U8 | None, rank: I32 | None) -> None:
        """Plan for what is `wanted`; whatever else is in force comes from the files until then.

        RoomError if the source cannot hold it as it is to.
        """
        for layer in np.flatnonzero(wanted.any(axis=1)).tolist():
            layer_of(self.layout, layer)  # says if it has no experts
        self._supply.make_room(wanted)
        self._source.make_room(wanted, rank)

    def prepare(self, layer: int, experts: NDArray[np.integer[Any]]) -> Iterator[None]:
        """Make these experts ready, a piece for each item taken.

        ExpertError if one is out of range, not in this share or not to be had, or the file has changed.

        No experts are none of any layer.
        """
        if len(experts) == 0:
            return
        check_ids(self.layout, layer, experts)
        check_there(self._there, layer, experts)
        yield from self._supply.bring(layer, experts)
        self.table.check(layer, experts)
        for _ in self._source.prepare(layer, experts):
            yield
            self.table.check(layer, experts)

    def stage(self, layer: int, leaves: int, comes: int) -> Iterator[None]:
        """See `protocol.holder.holdings.Preparer`; ExpertError as of `prepare`."""
        check_ids(self.layout, layer, np.array([min(leaves, comes), max(leaves, comes)]))
        self._source.exchange(layer, leaves, comes)
        yield from self.prepare(layer, np.array([comes]))

    def discard(self, layer: int, expert: int) -> None:
        """See `protocol.holder.holdings.Preparer`."""
        self._source.discard(layer, expert)

    def close(self) -> None:
        """Give up what the source holds, and no longer survive changes of the files. May be called again."""
        self._source.close()
        self._supply.close()
        self.table.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _refusal(self, work: RunExperts, error: ValueError) -> ExpertError:
        """What native code refuses, in the words of whoever checks first."""
        try:
            rows_of(self.layout, work.layer, work.codes, work.scales, work.values)
            check_ids(self.layout, work.layer, work.entry_expert)
        except ExpertError as said:
            return said
        return ExpertError(work.layer, -1, str(error))

    def _fetch(self, work: RunExperts) -> None:
        if not self.hints.begun:
            self._source.fetch(work.layer, work.entry_expert)
            return
        now, experts = time.monotonic(), distinct(work.entry_expert)
        trial = self.hints.trial
        if len(work.row) <= LOOKAHEAD_ROWS and trial.message(now - self._asked_at):
            log.info(
                "hints are %s: they save %.1f %% of the time", "followed" if trial.on else "off", 100 * trial.saved
            )
        self._asked_at = now
        self.hints.came(work.layer, work.step)
        far = self._source.fetch(work.layer, experts)
        # Whoever shares memory is one of a team, and the rest of each row is asked of others.
        share = min(1.0, len(work.entry_expert) / (self._chosen * max(1, len(work.row))))
        self.hints.asked(
            work.layer, experts, np.zeros(len(experts), np.uint8) if far is None else far, work.step, now, share=share
        )
