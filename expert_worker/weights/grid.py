"""A model's experts cut into numbered pieces: the same numbers for everybody who has the same files. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.layout import ROLES, ExpertLayout, LayerExperts
from protocol.messages import I64, MAX_PIECE_BYTES, U8

VERSION = 1
"""Changes whenever a piece gets another number."""


class Piece(NamedTuple):
    """Bytes of one matrix of one expert."""

    file: int
    """Its place among the model's files."""
    offset: int
    bytes: int


class _Cut(NamedTuple):
    """A piece of every expert of a layer."""

    role: str
    file: int
    offset: int
    """Of expert 0."""
    step: int
    """From one expert to the next."""
    bytes: int


class Grid:
    """The pieces of all experts: of a layer, expert by expert, each matrix in its order."""

    def __init__(self, layout: ExpertLayout, files: Sequence[str]) -> None:
        """`files`: names in the model's order."""
        self._experts = layout.experts
        self._all_layers = len(layout.layers)
        self._cuts = {layer: tuple(_cuts(experts, files)) for layer, experts in layout.with_experts()}
        self._layers = list(self._cuts)
        ends = np.cumsum([len(cuts) * layout.experts for cuts in self._cuts.values()])
        self._firsts = [0, *ends[:-1].tolist()]
        self.count = int(ends[-1])
        """Of all pieces."""

    def span(self, layer: int) -> slice:
        """The numbers of a layer's pieces; of none if it has no experts."""
        if layer not in self._cuts:
            return slice(0, 0)
        first = self._firsts[self._layers.index(layer)]
        return slice(first, first + len(self._cuts[layer]) * self._experts)

    def of(self, layer: int, experts: NDArray[np.integer[Any]]) -> I64:
        """The numbers of the pieces of some of a layer's experts (n,)."""
        each = len(self._cuts[layer])
        numbers: I64 = self.span(layer).start + np.asarray(experts, np.int64)[:, None] * each + np.arange(each)
        return numbers.ravel()

    def lengths(self, layer: int) -> I64:
        """(pieces of one expert,): bytes of each."""
        return np.array([cut.bytes for cut in self._cuts.get(layer, ())], np.int64)

    def missing_bytes(self, there: U8, wanted: U8, each_more: int = 0) -> int:
        """Of the `wanted` experts (layers, experts), where 1 is `there` (pieces,) for what need not be fetched.

        A piece counts for so many bytes more.
        """
        total = 0
        for layer in self._layers:
            absent = there[self.span(layer)].reshape(self._experts, -1) == 0
            total += int((absent & (wanted[layer, :, None] != 0)).sum(axis=0) @ (self.lengths(layer) + each_more))
        return total

    def whole(self, there: U8) -> U8:
        """(layers, experts): 1 for experts of which all is `there` (pieces,)."""
        found: U8 = np.zeros((self._all_layers, self._experts), np.uint8)
        for layer in self._layers:
            found[layer] = there[self.span(layer)].reshape(self._experts, -1).all(axis=1)
        return found

    def piece(self, number: int) -> Piece:
        """Where it lies."""
        cut, _, expert = self._find(number)
        return Piece(file=cut.file, offset=cut.offset + expert * cut.step, bytes=cut.bytes)

    def owner(self, number: int) -> tuple[int, int, str]:
        """Layer, expert and matrix that it belongs to."""
        cut, layer, expert = self._find(number)
        return layer, expert, cut.role

    def ranges(self) -> Iterator[Piece]:
        """All pieces, by number."""
        return map(self.piece, range(self.count))

    def _find(self, number: int) -> tuple[_Cut, int, int]:
        at = bisect_right(self._firsts, number) - 1
        layer = self._layers[at]
        expert, cut = divmod(number - self._firsts[at], len(self._cuts[layer]))
        return self._cuts[layer][cut], layer, expert


def _cuts(layer: LayerExperts, files: Sequence[str]) -> Iterator[_Cut]:
    for name, role in zip(ROLES, layer.roles, strict=True):
        for start in range(0, role.expert_bytes, MAX_PIECE_BYTES):
            yield _Cut(
                role=name,
                file=files.index(role.file),
                offset=role.offset + start,
                step=role.expert_bytes,
                bytes=min(MAX_PIECE_BYTES, role.expert_bytes - start),
            )
