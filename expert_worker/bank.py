"""A set of experts that can be run: the weights of a mapped model file, and the checks around the kernels.

Knows no sockets and no placement; the coordinator's local holder is this same class.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

import native
from expert_worker.warming import will_need
from protocol.errors import ChangedExpertError, ExpertError
from protocol.layout import LayerExperts, RoleTensor
from protocol.mapped import MappedFile
from protocol.messages import F32, I8, I32, I64
from protocol.model import Model


class _Matrices(NamedTuple):
    """One layer's three matrices of every expert."""

    gate: native.Weights
    up: native.Weights
    down: native.Weights


class WatchedFiles:
    """Mapped files that others may shrink: their lost pages read as zeros, and `problem` tells (rule R13)."""

    def __init__(self, files: Iterable[MappedFile]) -> None:
        """The files stay open for as long as they are watched."""
        self._files = {file.path.name: (file, native.Watch(file.data)) for file in files}

    def problem(self, name: str | None = None) -> str | None:
        """What became of the file `name` (of any, if None) since it was opened, in a sentence; None if nothing did."""
        for file, watch in self._files.values() if name is None else (self._files[name],):
            change = file.changed()
            if change is None and (offset := watch.fault()) >= 0:
                change = f"its bytes at offset {offset} cannot be read"
            if change is not None:
                return file.in_words(change)
        return None

    def close(self) -> None:
        """No longer survive changes of the files. May be called again."""
        for _, watch in self._files.values():
            watch.close()


class ExpertBank:
    """All experts of one model, computed where they lie."""

    def __init__(self, model: Model, pool: native.Pool) -> None:
        """`model` stays open for as long as the bank is used."""
        self.layout = model.layout
        self._pool = pool
        self._data = {file.path.name: file.file.data for file in model.files.files}
        self._watched = WatchedFiles(file.file for file in model.files.files)
        layers = dict(model.layout.with_experts())
        self._layers = {number: self._matrices(layer) for number, layer in layers.items()}
        self._files = {number: {role.file for role in layer.roles} for number, layer in layers.items()}

    def rows(self, layer: int, codes: I8, scales: F32, values: F32) -> native.Rows:
        """Activations for the kernels: from `codes` (n, width) and `scales` (n, width / 32), or `values` (n, width).

        ExpertError if that is not the form in which this layer's activations travel, or they are none.
        """
        quantised = self._layer(layer).quantised_input
        given = codes if quantised else values
        if len(given) == 0:
            expected, found = ("int8", "fp32") if quantised else ("fp32", "int8")
            raise ExpertError(layer, -1, f"activations are {found}, {expected} expected in this layer")
        if given.shape[1] != self.layout.width:
            raise ExpertError(layer, -1, f"activations have {given.shape[1]} columns, {self.layout.width} expected")
        try:
            return native.Rows.quantised(codes, scales) if quantised else native.Rows(values)
        except ValueError as error:
            raise ExpertError(layer, -1, str(error)) from None

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
        self._check_ids(layer, entry_expert)
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
            self._check_file(layer, entry_expert)  # if it has changed, that is why
            raise _in_words(layer, error, entry_expert) from None
        self._check_file(layer, entry_expert)

    def prepare(self, layer: int, experts: NDArray[np.integer[Any]]) -> None:
        """Ask for the pages of these experts. ExpertError if one is out of range or the file has changed.

        No experts are none of any layer.
        """
        if len(experts) == 0:
            return
        self._check_ids(layer, experts)
        self._check_file(layer, experts)
        for role in self._layer(layer).roles:
            for expert in experts.tolist():
                start = role.offset + expert * role.expert_bytes
                will_need(self._data[role.file][start : start + role.expert_bytes])

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
        return native.Weights(data, int(role.type), experts, role.rows, role.columns)

    def _layer(self, layer: int) -> LayerExperts:
        if not 0 <= layer < len(self.layout.layers):
            raise ExpertError(layer, -1, f"the model has layers 0 to {len(self.layout.layers) - 1}")
        if (experts := self.layout.layers[layer]) is None:
            raise ExpertError(layer, -1, "a dense layer, which has no experts")
        return experts

    def _check_ids(self, layer: int, experts: NDArray[np.integer[Any]]) -> None:
        self._layer(layer)
        for expert in (int(experts[0]), int(experts[-1])) if len(experts) else ():  # they ascend
            if not 0 <= expert < self.layout.experts:
                raise ExpertError(layer, expert, f"the model has experts 0 to {self.layout.experts - 1}")

    def _check_file(self, layer: int, experts: NDArray[np.integer[Any]]) -> None:
        """What was computed from a file that is not the one we opened is worth nothing, however finite it looks."""
        for name in self._files[layer]:
            if problem := self._watched.problem(name):
                raise ChangedExpertError(layer, int(experts[0]) if len(experts) else -1, problem)


def _in_words(layer: int, error: native.EntryRangeError | native.NonFiniteError, entry_expert: I32) -> ExpertError:
    """Names the expert that gave a number out of range; none for an activation row that is not finite.

    The same words whoever holds the expert: nothing in them depends on how entries are numbered here.
    """
    if isinstance(error, native.NonFiniteError):
        return ExpertError(layer, -1, str(error.args[0]))
    reason = "its output is not finite or reaches 2^22 in magnitude: are its weights damaged?"
    return ExpertError(layer, int(entry_expert[error.args[1]]), reason)
