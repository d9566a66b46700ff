"""Where each expert's three matrices are read from: the files' mapping, or a copy that a source has placed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import native
from protocol.holder.watched_files import WatchedFiles
from protocol.layout import LayerExperts, RoleTensor
from protocol.messages import I32, I64, U8
from protocol.model import Model

U64 = NDArray[np.uint64]


class Matrices(NamedTuple):
    """One layer's three matrices of every expert."""

    gate: native.Weights
    up: native.Weights
    down: native.Weights


class Ranges(NamedTuple):
    """Bytes of files, three ranges for each expert: gate, up, down."""

    descriptor: I32
    offset: I64
    length: I64
    address: U64
    """Where the range is mapped."""

    def some(self, chosen: NDArray[np.bool_]) -> Ranges:
        """Those that are chosen, (ranges,)."""
        return Ranges(self.descriptor[chosen], self.offset[chosen], self.length[chosen], self.address[chosen])


class _Spots(NamedTuple):
    """Of one layer, each (3,): where expert 0 lies, and bytes of every expert."""

    descriptor: I32
    offset: I64
    length: I64
    address: U64


class ExpertTable:
    """All experts of a model. The compute loop reads it while other threads place copies, and take them away.

    What the compute loop has leased stays where it is.
    """

    def __init__(self, model: Model) -> None:
        """`model` stays open for as long as the table is used."""
        self.layout = model.layout
        self._data = {file.path.name: file.file.data for file in model.files.files}
        self.files = {file.path.name: file.file for file in model.files.files}
        self._watched = WatchedFiles(self.files.values())
        layers = dict(model.layout.with_experts())
        self._files_of = {number: {role.file for role in layer.roles} for number, layer in layers.items()}
        self._matrices = {number: self._views(layer) for number, layer in layers.items()}
        self._spots = {number: self._spots_of(layer) for number, layer in layers.items()}
        self.placed: U8 = np.zeros((len(model.layout.layers), model.layout.experts), np.uint8)
        """(layers, experts): 1 where a copy is placed. To be read; `place` and `displace` write."""
        self._lock = threading.Lock()
        self._leased: tuple[int, frozenset[int]] = (-1, frozenset())

    def __contains__(self, layer: int) -> bool:
        return layer in self._matrices

    def matrices(self, layer: int) -> Matrices:
        """A layer's weights, for kernels."""
        return self._matrices[layer]

    def blob_bytes(self, layer: int) -> int:
        """Bytes of one expert."""
        return int(self._spots[layer].length.sum())

    def ranges(self, layer: int, experts: NDArray[np.integer[Any]]) -> Ranges:
        """Where the files have these experts (n,): 3 n ranges, expert by expert."""
        spots = self._spots[layer]
        steps = np.asarray(experts, np.int64)[:, None] * spots.length
        return Ranges(
            np.broadcast_to(spots.descriptor, steps.shape).ravel(),
            (spots.offset + steps).ravel(),
            np.broadcast_to(spots.length, steps.shape).ravel(),
            (spots.address + steps.astype(np.uint64)).ravel(),
        )

    def sizes(self, layer: int) -> tuple[int, int, int]:
        """Bytes of gate, up and down of one expert."""
        gate, up, down = self._spots[layer].length.tolist()
        return gate, up, down

    def place(self, layer: int, expert: int, parts: Sequence[U8]) -> None:
        """From now on the expert is read from these copies of gate, up and down, which are kept alive."""
        with self._lock:
            for weights, part in zip(self._matrices[layer], parts, strict=True):
                weights.place(expert, part)
            self.placed[layer, expert] = 1

    def displace(self, layer: int, expert: int) -> bool:
        """Read it from the file again; False, and nothing is done, while it is leased."""
        with self._lock:
            leased_layer, leased = self._leased
            if layer == leased_layer and expert in leased:
                return False
            for weights in self._matrices[layer]:
                weights.unplace(expert)
            self.placed[layer, expert] = 0
            return True

    def lease(self, layer: int, experts: Iterable[int]) -> None:
        """Until `release` no copy of these is taken away. The compute loop alone leases, one layer at a time."""
        with self._lock:
            self._leased = (layer, frozenset(experts))

    def release(self) -> None:
        """The compute loop has done with what it leased."""
        self._leased = (-1, frozenset())

    def check(self, layer: int, experts: NDArray[np.integer[Any]]) -> None:
        """ChangedExpertError, which names the first of these, if a file that has this layer is not what it was.

        What was read from it since then is worth nothing.
        """
        self._watched.check(self._files_of[layer], layer, experts)

    def close(self) -> None:
        """No longer survive changes of the files. May be called again."""
        self._watched.close()

    def _views(self, layer: LayerExperts) -> Matrices:
        return Matrices(*(self._weights(role) for role in layer.roles))

    def _weights(self, role: RoleTensor) -> native.Weights:
        experts = self.layout.experts
        data = self._data[role.file][role.offset : role.offset + role.expert_bytes * experts]
        return native.Weights(data, int(role.type), experts, role.rows, role.columns, role.packed)

    def _spots_of(self, layer: LayerExperts) -> _Spots:
        roles = layer.roles
        return _Spots(
            np.array([self.files[role.file].descriptor for role in roles], np.int32),
            np.array([role.offset for role in roles], np.int64),
            np.array([role.expert_bytes for role in roles], np.int64),
            np.array([self._data[role.file].ctypes.data + role.offset for role in roles], np.uint64),
        )
