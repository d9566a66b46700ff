"""One request, from its Submit to its last token: checks, sampling, drafts, digest and times; no socket."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from coordinator.choosing import choose
from coordinator.drafts import MAX_DRAFTS, NO_DRAFT, Draft, Drafter
from coordinator.engine import Chunk, TokenSequence
from coordinator.sampling import Sampling
from coordinator.scheduler import Pending
from coordinator.tallies import Counters, DraftCounts
from protocol.errors import RequestError
from protocol.messages import AS_CONFIGURED, F32, Submit, Token


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


def drafts_of(submit: Submit, default: int) -> int:
    """How many drafts a step may have, by `default` if it does not say; RequestError for a value out of range."""
    if submit.drafts == AS_CONFIGURED:
        return default
    if not 0 <= submit.drafts <= MAX_DRAFTS:
        raise RequestError(
            f"drafts is {submit.drafts}, expected 0 to {MAX_DRAFTS}, or {AS_CONFIGURED} for the coordinator's number"
        )
    return submit.drafts


class Request:
    """A request that is being answered. Readings of a monotonic clock, in seconds, are passed in."""

    def __init__(
        self,
        key: int,
        client: bytes,
        submit: Submit,
        sampling: Sampling,
        sequence: TokenSequence,
        before: Counters,
        drafts: int = 0,
    ) -> None:
        """`sequence` is empty and has room for all of it; `before` is what had been counted when it came.

        A step may have so many `drafts` of it.
        """
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
        self._max_drafts = drafts
        self._drafter = Drafter() if drafts else None  # None also once it is given up
        self.counts = DraftCounts()
        """What drafting came to so far."""

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

    def draft(self) -> Draft:
        """What may follow its last token; nothing while it reads its prompt."""
        if self._drafter is None or not self.generated:
            return NO_DRAFT
        return self._drafter.guess(min(self._max_drafts, self._max_tokens - self.generated - 1))

    def give_up_drafts(self) -> None:
        """A step with drafts of it has failed: it goes on without, so that this costs time only once."""
        self._drafter = None

    def chunk(self, rows: int, now: float, drafts: Sequence[int] = ()) -> Chunk:
        """Its next rows, and drafts of what follows its last id; logits are wanted of that one and of drafts."""
        if self._began_at is None:
            self._began_at = now
        start = self.sequence.position
        last, ids = start + rows == len(self._ids), self._ids[start : start + rows]
        if self._drafter is not None and len(self._drafter) < start + rows:
            self._drafter.read(self._ids[len(self._drafter) : start + rows])
        logits: Literal["last", "none"] = "last" if last else "none"
        return Chunk(sequence=self.sequence, ids=[*ids, *drafts], logits=logits, drafts=len(drafts))

    def take(self, logits: F32, drafts: Sequence[int], now: float) -> Iterator[tuple[Token, str | None]]:
        """Choose the next tokens, and say why the answer ends with one, if it does.

        `logits` (1 + drafts, vocabulary) are of the last known id and of `drafts`. A draft's are used if it is the
        token that is chosen: so each token is what it would be without drafts. RequestError if none can be chosen.
        """
        self.counts.steps += self.generated > 0
        self.counts.drafted += len(drafts)
        for row, draft in zip(logits, (*drafts, None), strict=True):
            token, reason = self._choose(row, now)
            right = token.id == draft
            if right:
                self.sequence.keep(token.id)
                self.counts.accepted += 1
            yield token, reason
            if reason is not None or not right:
                return

    def _choose(self, logits: F32, now: float) -> tuple[Token, str | None]:
        if self._prompt_at is None:
            self._prompt_at = self._token_at = now
        chosen = choose(logits, self._ids, self._sampling, len(self._ids))
        self._digest.update(np.ascontiguousarray(logits, "<f4").data)
        self._ids.append(chosen)
        if self._drafter is not None:
            self._drafter.take(chosen)
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
