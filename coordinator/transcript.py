"""What one answer consists of, token by token, and the report of it at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coordinator.detokenizer import Detokenizer
from protocol.messages import Finished, Token

WORKER_KEYS = ("name", "pid", "experts", "calls", "entries", "busy_s", "wait_s")
"""What the report tells of each worker, of this answer: `busy_s` in its kernels, `wait_s` waiting for its next call."""


class Transcript:
    """The tokens of an answer that are kept: all up to the one that completes a stop string."""

    def __init__(self, prompt_ids: Sequence[int], stop_ids: Sequence[int], detokenizer: Detokenizer) -> None:
        self._prompt_ids = list(prompt_ids)
        self._stop_ids = frozenset(stop_ids)
        self._detokenizer = detokenizer
        self._ids: list[int] = []
        self._sha256_logits = hashlib.sha256().hexdigest()
        self._elapsed_us: list[int] = []

    @property
    def stopped(self) -> bool:
        """A stop string is complete: no more tokens are wanted, those that still come are not part of the answer."""
        return self._detokenizer.stopped

    def push(self, token: Token) -> str:
        """Take the next token; returns the text that can be shown now."""
        if self.stopped:
            return ""
        self._ids.append(token.id)
        self._sha256_logits = token.sha256_logits
        self._elapsed_us.append(token.elapsed_us)
        return "" if token.id in self._stop_ids else self._detokenizer.push(token.id)

    def finish(self) -> str:
        """No more tokens come; returns the text that was held back."""
        return self._detokenizer.finish()

    def report(self, finished: Finished) -> dict[str, Any]:
        """Everything about the answer, in plain values; call `finish` first.

        Speeds are tokens a second: the prompt's, and of the generated tokens after the first, None if there are none.
        """
        facts = finished.report
        return {
            "prompt_ids": self._prompt_ids,
            "ids": self._ids,
            "text": self._detokenizer.text,
            "finish_reason": "stop" if self.stopped else finished.reason,
            "sha256_ids": hashlib.sha256(np.asarray(self._ids, "<i4").tobytes()).hexdigest(),
            "sha256_logits": self._sha256_logits,
            "prompt_tps": _per_second(len(self._prompt_ids), finished.prompt_us),
            "decode_tps": _per_second(len(self._ids) - 1, sum(self._elapsed_us[1:])),
            "drafts": _acceptance(facts.get("drafts", {})),
            "isa": facts.get("isa"),
            "threads": facts.get("threads"),
            "device": facts.get("device"),
            "device_entries": facts.get("device_entries"),
            "local_entries": facts.get("local_entries"),
            "workers": [_share(worker) for worker in facts.get("workers", [])],
        }


def _share(worker: Mapping[str, Any]) -> dict[str, Any]:
    return {key: round(worker[key], 6) if key in ("busy_s", "wait_s") else worker[key] for key in WORKER_KEYS}


def _acceptance(counts: Mapping[str, int]) -> dict[str, Any]:
    """DraftCounts, and the share of drafts that were right; None if there were none."""
    steps, drafted, accepted = (counts.get(key, 0) for key in ("steps", "drafted", "accepted"))
    share = round(accepted / drafted, 4) if drafted else None
    return {"steps": steps, "drafted": drafted, "accepted": accepted, "acceptance": share}


def _per_second(tokens: int, microseconds: int) -> float | None:
    return round(tokens * 1e6 / microseconds, 2) if tokens > 0 and microseconds > 0 else None
