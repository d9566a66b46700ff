"""A set of experts that can be run: the weights of a mapped model file, and the checks around the kernels.

Knows no sockets and no placement; the coordinator's local holder is this same class.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

import native
from expert_worker.warming import in_cache, will_need
from protocol.errors import ExpertError
from protocol.holder.refusals import check_ids, check_there, in_words, layer_of, rows_of
from protocol.holder.watched_files import WatchedFiles
from protocol.layout import LayerExperts, RoleTensor
from protocol.messages import F32, I32, I64, U8, RunExperts, Sums
from protocol.model import Model


class _Matrices(NamedTuple):
    """One layer's three matrices of every expert."""

    gate: native.Weights
    up: native.Weights
    down: native.Weights


class ExpertBank:
    """All experts of one model, computed where they lie."""

    def __init__(self, model: Model, pool: native.Pool) -> None:
        """`model` stays open for as long as the bank is used."""
        self.layout = model.layout
        self._there = model.there
        self._pool = pool
        self._data = {file.path.name: file.file.data for file in model.files.files}
        self._descriptors = {file.path.name: file.file.descriptor for file in model.files.files}
        self._watched = WatchedFiles(file.file for file in model.files.files)
        layers = dict(model.layout.with_experts())
        self._layers = {number: self._matrices(layer) for number, layer in layers.items()}
        self._files = {number: {role.file for role in layer.roles} for number, layer in layers.items()}

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
            native.run_experts(
                self._pool,
                *self._layers[layer],
                rows,
                entry_expert,
                entry_row,
                entry_weight,
                entry_slot,
                singles,
                sums,
            )
        except (native.EntryRangeError, native.NonFiniteError) as error:
            self._check_files(layer, entry_expert)  # if it has changed, that is why
            raise in_words(layer, error, entry_expert) from None
        self._check_files(layer, entry_expert)

    def answer(self, work: RunExperts, wait_us: int) -> Sums:
        """See `protocol.holder.answer.Runner`: from the message to the message in one native call."""
        if work.layer not in self._layers:
            layer_of(self.layout, work.layer)  # says why
        try:
            reply = native.answer_call(Sums, work, self._pool, *self._layers[work.layer], wait_us)
        except (native.EntryRangeError, native.NonFiniteError) as error:
            self._check_files(work.layer, work.entry_expert)  # if it has changed, that is why
            raise in_words(work.layer, error, work.entry_expert) from None
        except ValueError as error:
            raise self._refusal(work, error) from None
        self._check_files(work.layer, work.entry_expert)
        return reply

    def make_room(self, wanted: U8, in_force: U8 | None) -> None:
        """Nothing: experts lie in the file, and the kernel makes room for its pages."""

    def prepare(self, layer: int, experts: NDArray[np.integer[Any]]) -> None:
        """Ask for what is not in memory of these experts.

        ExpertError if one is out of range or not in this share, or the file has changed.

        No experts are none of any layer.
        """
        if len(experts) == 0:
            return
        check_ids(self.layout, layer, experts)
        check_there(self._there, layer, experts)
        self._check_files(layer, experts)
        for role in layer_of(self.layout, layer).roles:
            for expert in experts.tolist():
                self._ask_for(role, expert)

    def missing(self, layer: int, experts: I32) -> U8:
        """1 for those of `experts` (n,) that are not wholly in memory, as far as the kernel tells. From any thread."""
        roles = layer_of(self.layout, layer).roles
        here = [all(self._is_here(role, expert) for role in roles) for expert in experts.tolist()]
        return np.logical_not(here).astype(np.uint8)

    def warm(self, layer: int, experts: I32) -> None:
        """Ask for what is not in memory of these experts (n,), which may be needed soon: advice. From any thread."""
        for role in layer_of(self.layout, layer).roles:
            for expert in experts.tolist():
                self._ask_for(role, expert)

    def close(self) -> None:
        """No longer survive changes of the files. May be called again."""
        self._watched.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _matrices(self, layer: LayerExperts) -> _Matrices:
        return _Matrices(*(self._weights(role) for role in layer.roles))

    def _weights(self, role: RoleTensor) -> native.Weights:
        experts = self.layout.experts
        data = self._data[role.file][role.offset : role.offset + role.expert_bytes * experts]
        return native.Weights(data, int(role.type), experts, role.rows, role.columns, role.packed)

    def _refusal(self, work: RunExperts, error: ValueError) -> ExpertError:
        """What native code refuses, in the words of whoever checks first."""
        try:
            rows_of(self.layout, work.layer, work.codes, work.scales, work.values)
            check_ids(self.layout, work.layer, work.entry_expert)
        except ExpertError as said:
            return said
        return ExpertError(work.layer, -1, str(error))

    def _ask_for(self, role: RoleTensor, expert: int) -> None:
        if not self._is_here(role, expert):
            start = role.offset + expert * role.expert_bytes
            will_need(self._data[role.file][start : start + role.expert_bytes])

    def _is_here(self, role: RoleTensor, expert: int) -> bool:
        return in_cache(self._descriptors[role.file], role.offset + expert * role.expert_bytes, role.expert_bytes)

    def _check_files(self, layer: int, experts: NDArray[np.integer[Any]]) -> None:
        self._watched.check(self._files[layer], layer, experts)
