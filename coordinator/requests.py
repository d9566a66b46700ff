"""One request, from its Submit to its last token: checks, sampling, digest and times; no socket."""

from __future__ import annotations

import hashlib

import numpy as np

from coordinator.choosing import choose
from coordinator.engine import Chunk, TokenSequence
from coordinator.sampling import Sampling
from coordinator.scheduler import Pending
from coordinator.tallies import Counters
from protocol.errors import RequestError
from protocol.messages import F32, Submit, Token


def sampling_of(submit: Submit) -> Sampling:
    """How its tokens are to be chosen; RequestError for a value out of range."""
    if submit.max_tokens < 1:
        raise RequestError(f"max_tokens is {submit.max_tokens}, expected 1 or more")
    return Sampling(
        temperature=submit.temperature,
        top_k=submit.top_k,
        top_p=submit.top_p,
        min_p=submit.min_p,
        repeat_penalty=submit.repeat_penalty,
        repeat_window=submit.repeat_window,
        seed=submit.seed,
    )


class Request:
    """A request that is being answered. Readings of a monotonic clock, in seconds, are passed in."""

    def __init__(
        self, key: int, client: bytes, submit: Submit, sampling: Sampling, sequence: TokenSequence, before: Counters
    ) -> None:
        """`sequence` is empty and has room for all of it; `before` is what had been counted when it came."""
        self.key = key
        self.client = client
        self.name = submit.request
        self.sequence = sequence
        self.before = before
        self.prompt_tokens = len(submit.prompt_ids)
        self._sampling = sampling
        self._max_tokens = submit.max_tokens
        self._stop_ids = frozenset(submit.stop_ids)
        self._ids: list[int] = submit.prompt_ids.tolist()
        self._digest = hashlib.sha256()
        self._began_at: float | None = None
        self._prompt_at: float | None = None
        self._token_at = 0.0

    @property
    def generated(self) -> int:
        """How many tokens it has so far."""
        return len(self._ids) - self.prompt_tokens

    @property
    def prompt_done(self) -> int:
        """How many prompt rows are computed."""
        return min(self.sequence.position, self.prompt_tokens)

    def pending(self) -> Pending:
        """What it has to compute next, for the scheduler."""
        rows = len(self._ids) - self.sequence.position
        return Pending(key=self.key, rows=rows, last_step=self.sequence.last_step)

    def chunk(self, rows: int, now: float) -> Chunk:
        """Its next rows; logits are wanted of the last one that is known."""
        if self._began_at is None:
            self._began_at = now
        start = self.sequence.position
        last = start + rows == len(self._ids)
        return Chunk(sequence=self.sequence, ids=self._ids[start : start + rows], logits="last" if last else "none")

    def take(self, logits: F32, now: float) -> tuple[Token, str | None]:
        """Choose the next token from logits (vocabulary,): it, and why the answer ends with it, if it does.

        RequestError if none can be chosen.
        """
        if self._prompt_at is None:
            self._prompt_at = self._token_at = now
        chosen = choose(logits, self._ids, self._sampling, len(self._ids))
        self._digest.update(np.ascontiguousarray(logits, "<f4").data)
        self._ids.append(chosen)
        token = Token(
            request=self.name,
            index=self.generated - 1,
            id=chosen,
            sha256_logits=self._digest.hexdigest(),
            elapsed_us=_microseconds(now - self._token_at),
        )
        self._token_at = now
        if chosen in self._stop_ids:
            return token, "stop"
        return token, "length" if self.generated == self._max_tokens else None

    def spent_us(self, now: float) -> tuple[int, int]:
        """Time for the prompt, from its first step on, and for the generated tokens."""
        if self._began_at is None:
            return 0, 0
        if self._prompt_at is None:
            return _microseconds(now - self._began_at), 0
        return _microseconds(self._prompt_at - self._began_at), _microseconds(self._token_at - self._prompt_at)


def _microseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e6))
