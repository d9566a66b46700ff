"""How much memory experts take on a device, whoever counts: who places them, and who holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from protocol.layout import ExpertLayout
from protocol.messages import U8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stock:
    """The experts of a model, by their sizes."""

    slot_bytes: tuple[int, ...]
    """By layer: bytes that one expert takes in a device's memory; 0 in a dense layer, which has no experts."""
    experts: int
    """Of each layer that has any."""

    @classmethod
    def of(cls, layout: ExpertLayout) -> Self:
        """All experts of a model."""
        slot_bytes = tuple(0 if layer is None else layer.slot_bytes for layer in layout.layers)
        return cls(slot_bytes=slot_bytes, experts=layout.experts)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have experts."""
        return tuple(layer for layer, size in enumerate(self.slot_bytes) if size)

    @property
    def bytes(self) -> int:
        """That all experts take together in a device's memory."""
        return sum(self.slot_bytes) * self.experts

    def nothing(self) -> U8:
        """(layers, experts): none of them."""
        return np.zeros((len(self.slot_bytes), self.experts), np.uint8)

    def bytes_of(self, held: U8) -> int:
        """That these experts (layers, experts) take."""
        return int(held.sum(axis=1, dtype=np.int64) @ np.array(self.slot_bytes, np.int64))
