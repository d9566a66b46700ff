"""What the experts of a layer take, told to lookahead processes while the layer is computed; nobody is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.messages import F32, I8, LOOKAHEAD_ROWS, LayerInput, Message


class Publisher(Protocol):
    """What is used of the socket (protocol.wire.Publisher)."""

    refused: int

    def wanted(self) -> bool: ...
    def send(self, message: Message) -> bool: ...


@dataclass(slots=True, kw_only=True, eq=False)
class LayerInputs:
    """Publishes layer inputs if anybody listens; else a layer costs one question to the socket."""

    publisher: Publisher
    session: str
    last_layer: int
    """Of the layers with experts the last one: there is nothing to look ahead to."""
    clock: Callable[[], float] = time.perf_counter
    published: int = 0
    spent_s: float = 0.0
    """In publishing."""

    def wanted(self, layer: int) -> bool:
        """Whether this layer's input is of use to anybody."""
        return layer != self.last_layer and self.publisher.wanted()

    def publish(self, step: int, layer: int, codes: I8, scales: F32, values: F32) -> None:
        """Tell the first rows of what RunExperts has of all."""
        began = self.clock()
        self.publisher.send(
            LayerInput(
                session=self.session,
                step=step,
                layer=layer,
                # Small arrays are copied when they are sent, large ones lie where the next step will be.
                codes=codes[:LOOKAHEAD_ROWS].copy(),
                scales=scales[:LOOKAHEAD_ROWS].copy(),
                values=values[:LOOKAHEAD_ROWS].copy(),
            )
        )
        self.published += 1
        self.spent_s += self.clock() - began

    def report(self) -> dict[str, int]:
        """As plain values, since the start."""
        return {"published": self.published, "refused": self.publisher.refused, "us": int(self.spent_s * 1e6)}
