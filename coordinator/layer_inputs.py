"""What the experts of a layer take, told to lookahead processes while the layer is computed; nobody is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from protocol.codec import LARGE_ARRAY_BYTES
from protocol.messages import F32, I8, LOOKAHEAD_ROWS, LayerInput, Message

LOOK_S = 0.1
"""How soon it is noticed that somebody listens: to ask the socket takes as long as a few lines of Python."""

A = TypeVar("A", I8, F32)


class Publisher(Protocol):
    """What is used of the socket (protocol.wire.Publisher)."""

    refused: int

    def wanted(self) -> bool: ...
    def send(self, message: Message) -> bool: ...


@dataclass(slots=True, kw_only=True, eq=False)
class LayerInputs:
    """Publishes layer inputs if anybody listens; else a layer costs a look at the clock."""

    publisher: Publisher
    session: str
    last_layer: int
    """Of the layers with experts the last one: there is nothing to look ahead to."""
    clock: Callable[[], float] = time.perf_counter
    published: int = 0
    spent_s: float = 0.0
    """In publishing."""
    _listened: bool = False
    _look_at: float = float("-inf")

    def wanted(self, layer: int) -> bool:
        """Whether this layer's input is of use to anybody."""
        if layer == self.last_layer or (not self._listened and self.clock() < self._look_at):
            return False
        self._listened = self.publisher.wanted()
        self._look_at = self.clock() + LOOK_S
        return self._listened

    def publish(self, step: int, layer: int, codes: I8, scales: F32, values: F32) -> None:
        """Tell the first rows of what RunExperts has of all."""
        began = self.clock()
        self.publisher.send(
            LayerInput(
                session=self.session,
                step=step,
                layer=layer,
                codes=_kept(codes),
                scales=_kept(scales),
                values=_kept(values),
            )
        )
        self.published += 1
        self.spent_s += self.clock() - began

    def report(self) -> dict[str, int]:
        """As plain values, since the start."""
        return {"published": self.published, "refused": self.publisher.refused, "us": int(self.spent_s * 1e6)}


def _kept(array: A) -> A:
    """Its first rows. Small arrays are copied when they are sent; large ones must outlive the step, so here."""
    few: A = array[:LOOKAHEAD_ROWS]
    return few.copy() if few.nbytes >= LARGE_ARRAY_BYTES else few
