"""Which of the layer inputs that came are still worth a prediction: the newest of each step under way."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.messages import LayerInput

STEPS = 2
"""Steps that may be under way: a window's halves have a number each."""


class Newest:
    """Takes layer inputs of one session in; gives out each step's newest, once."""

    def __init__(self, session: str) -> None:
        self.skipped = 0
        """Inputs that a newer one overtook before anybody looked at them."""
        self.foreign = 0
        """Those of another session."""
        self._session = session
        self._layers: dict[int, int] = {}  # by step, the newest layer heard of
        self._waiting: dict[int, LayerInput] = {}

    def hear(self, messages: Iterable[object]) -> None:
        """What came, in this order; whatever is no layer input of this session is counted and dropped."""
        for message in messages:
            if not isinstance(message, LayerInput) or message.session != self._session:
                self.foreign += 1
            elif self.is_passed(message.step, message.layer):
                self.skipped += 1
            else:
                self._take(message)

    def next(self) -> LayerInput | None:
        """The one to look at now, of the earliest step; None if there is none."""
        return self._waiting.pop(min(self._waiting)) if self._waiting else None

    def is_passed(self, step: int, layer: int) -> bool:
        """Whether this layer of this step has begun, as far as is known: it is too late for hints."""
        if step in self._layers:
            return layer <= self._layers[step]
        return len(self._layers) == STEPS and step < min(self._layers)

    def _take(self, message: LayerInput) -> None:
        self._layers[message.step] = message.layer
        if len(self._layers) > STEPS:
            over = min(self._layers)
            del self._layers[over]
            self.skipped += self._waiting.pop(over, None) is not None
        self.skipped += message.step in self._waiting
        self._waiting[message.step] = message
