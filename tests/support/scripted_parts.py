"""What stands around a dispatcher in tests: a clock, sockets, a bank, rows and slots that a test has in its hands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import native
from protocol.codec import encode
from protocol.errors import ExpertError
from protocol.messages import (
    F32,
    I32,
    I64,
    Message,
)

LAYERS, EXPERTS, WIDTH = 2, 8, 32


class Clock:
    """Passes only when somebody waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class ScriptedSocket:
    """A listening socket whose peers are functions: what they say arrives when they say it."""

    def __init__(self) -> None:
        self.dropped = 0
        self.inbox: deque[tuple[bytes, Message]] = deque()
        self.peers: dict[bytes, Callable[[Message], None]] = {}
        self.sent: list[tuple[bytes, Message]] = []

    def send(self, peer: bytes, message: Message) -> bool:
        encode(message)  # raises for what no socket can send
        if peer not in self.peers:
            return False
        self.sent.append((peer, message))
        self.peers[peer](message)
        return True

    def receive(self, timeout_s: float = 0) -> tuple[bytes, Message] | None:
        return self.inbox.popleft() if self.inbox else None

    def close(self, flush_s: float = 0) -> None:
        self.peers.clear()


@dataclass(frozen=True, slots=True)
class LayerForm:
    quantised_input: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """What the dispatcher asks of an ExpertLayout."""

    width: int
    layers: tuple[LayerForm, ...]

    def with_experts(self) -> Iterator[tuple[int, LayerForm]]:
        """All of them."""
        return enumerate(self.layers)


class Bank:
    """The local bank: counts what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[int]]] = []
        self.broken = False

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
        if self.broken:
            raise ExpertError(layer, int(entry_expert[0]), "the bank is broken")
        self.calls.append((layer, entry_expert.tolist()))
        for expert, row, weight, slot in zip(entry_expert, entry_row, entry_weight, entry_slot, strict=True):
            assert slot == -1 - row
            sums[-1 - slot] += fixed(value(int(row), int(expert), float(weight)))


class Rows:
    """Activation rows on a device: notes when they are fetched from there."""

    def __init__(self, count: int, diary: list[str]) -> None:
        self.count, self.columns = count, WIDTH
        self._diary = diary
        self._fetched: native.Rows | None = None

    def host(self, quantised: bool) -> native.Rows:
        if self._fetched is None:
            self._diary.append("fetch")
            self._fetched = native.Rows(np.zeros((self.count, self.columns), np.float32))
        return self._fetched


class Slots:
    """The coordinator's own slots: they compute while they are waited for, and not before."""

    class device:
        """What is used of it."""

        empty = staticmethod(np.empty)

    layout = Layout(width=WIDTH, layers=())

    def __init__(self, clock: Clock) -> None:
        self.diary: list[str] = []
        """What was done, in order."""
        self.broken = False
        self._clock = clock
        self._launched: list[tuple[I64, I32, I32, F32]] = []

    def run(
        self,
        layer: int,
        rows: Rows,
        entry_expert: I32,
        entry_row: I32,
        entry_weight: F32,
        entry_slot: I32,
        singles: F32,
        sums: I64,
    ) -> None:
        assert singles.shape == (0, WIDTH)
        np.testing.assert_array_equal(entry_slot, -1 - entry_row)
        self.diary.append("launch")
        self._launched.append((sums, entry_expert, entry_row, entry_weight))

    def check(self, layer: int, entry_expert: I32) -> None:
        self.diary.append("check")
        self._clock.now += 0.01
        [(sums, experts, rows, weights)] = self._launched
        self._launched.clear()
        np.testing.assert_array_equal(experts, entry_expert)
        if self.broken:
            raise ExpertError(layer, int(experts[0]), "the slots are broken")
        for expert, row, weight in zip(experts, rows, weights, strict=True):
            sums[row] += fixed(value(int(row), int(expert), float(weight)))


def value(row: int, expert: int, weight: float) -> float:
    return weight * (expert + 1) * (row + 1)


def fixed(value: float) -> int:
    return round(value * 2.0**36)


def expected_sums(ids: I32, weights: F32) -> I64:
    """What every layer must come to, whoever computes it."""
    sums = np.zeros((len(ids), WIDTH), np.int64)
    for row, (experts, factors) in enumerate(zip(ids.tolist(), weights.tolist(), strict=True)):
        sums[row] += sum(fixed(value(row, expert, factor)) for expert, factor in zip(experts, factors, strict=True))
    return sums
