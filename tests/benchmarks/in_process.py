"""One process that computes everything, as a coordinator without workers does, and times its own steps."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import native
from coordinator.dense import DenseModel
from coordinator.engine import Chunk, Engine, TokenSequence
from coordinator.local import LocalExperts
from coordinator.sampling import Sampling, choose
from expert_worker.bank import ExpertBank
from protocol.messages import MAX_ROWS
from protocol.model import Model

SEED = 1


@dataclass(slots=True, kw_only=True, eq=False)
class InProcess:
    """A model, an engine over it, and a conversation."""

    model: Model
    dense: DenseModel
    engine: Engine
    threads: int
    _sequence: TokenSequence | None = None
    _ids: list[int] | None = None
    on_sampled: Callable[[float], None] = lambda seconds: None
    """Hears how long a token's choice and the digest of its logits took."""

    def prompt(self, count: int) -> list[int]:
        """Random ids, the same for the same model."""
        ids: list[int] = np.random.default_rng(SEED).integers(0, self.model.geometry.vocabulary, count).tolist()
        return ids

    def begin(self, room: int) -> None:
        """A new conversation of at most so many tokens."""
        self._sequence, self._ids = self.engine.new_sequence([0], room), []

    def step(self, ids: Sequence[int]) -> float:
        """Compute these ids and choose the next token; seconds that it took."""
        assert self._sequence is not None
        assert self._ids is not None
        began = time.perf_counter()
        [logits] = self.engine.step([Chunk(sequence=self._sequence, ids=ids)])
        computed = time.perf_counter()
        self._ids += ids
        self._ids.append(choose(logits[-1], self._ids, Sampling(), len(self._ids)))
        hashlib.sha256(np.ascontiguousarray(logits[-1]).data).digest()
        ended = time.perf_counter()
        self.on_sampled(ended - computed)
        return ended - began

    def decode(self, tokens: int) -> float:
        """Continue the conversation, token by token; seconds that it took."""
        assert self._ids is not None
        return sum(self.step([self._ids.pop()]) for _ in range(tokens))


@contextmanager
def in_process(path: Path, threads: int, kv: str = "f16") -> Iterator[InProcess]:
    """The model of `path` on so many threads. ModelError if it cannot be computed."""
    pool = native.Pool(threads)
    with Model.open(path) as model, ExpertBank(model, pool) as bank:
        dense = DenseModel(model, pool, MAX_ROWS, kv)
        with Engine(model, LocalExperts(bank), dense) as engine:
            yield InProcess(model=model, dense=dense, engine=engine, threads=threads)
