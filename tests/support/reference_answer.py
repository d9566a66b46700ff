"""What an answer must be: the greedy continuation of a prompt, computed in this process without any mesh."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clusters import Answer
from local_engine import local_engine

from coordinator.engine import Chunk, Engine
from protocol.messages import MAX_ROWS

PROMPT = list(range(100, 130))
LONGEST = 1900


class Reference:
    """The greedy answer to a prompt, computed in this process without any mesh, as far as it is needed."""

    def __init__(self, engine: Engine, prompt: Sequence[int] = PROMPT, longest: int = LONGEST) -> None:
        self._engine = engine
        self._sequence = engine.new_sequence(prompt, longest)
        *chunks, self._next_ids = [prompt[at : at + MAX_ROWS] for at in range(0, len(prompt), MAX_ROWS)]
        for chunk in chunks:
            engine.step([Chunk(sequence=self._sequence, ids=chunk)])
        self._digest = hashlib.sha256()
        self._ids: list[int] = []
        self._sha256_logits: list[str] = []

    def check(self, answer: Answer) -> None:
        """The answer is this one, as far as it goes."""
        tokens = len(answer.ids)
        while len(self._ids) < tokens:
            self._extend()
        assert answer.ids == self._ids[:tokens]
        assert answer.sha256_logits == self._sha256_logits[tokens - 1]

    def _extend(self) -> None:
        [logits] = self._engine.step([Chunk(sequence=self._sequence, ids=self._next_ids)])
        self._digest.update(logits[0].astype("<f4").tobytes())
        self._next_ids = [int(logits[0].argmax())]
        self._ids += self._next_ids
        self._sha256_logits.append(self._digest.hexdigest())


@contextmanager
def reference_for(model: Path, prompt: Sequence[int] = PROMPT, longest: int = LONGEST) -> Iterator[Reference]:
    """Of any model."""
    with local_engine(model, kv="f16", threads=2) as engine:
        yield Reference(engine, prompt, longest)
