"""What clients ask for, and get: control."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from protocol.messages.base import I32, Message, Spec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Submit(Message):
    """Client to coordinator: continue this prompt. Answered by Prefilled, Token, then Finished or RequestFailed."""

    request: str
    prompt_ids: Annotated[I32, Spec("i4", 1)]
    max_tokens: int
    stop_ids: list[int]  # generation ends after one of these; empty to go on
    temperature: float  # 0 is greedy
    top_k: int  # 0 is all
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_window: int
    seed: int
    drafts: int  # guessed tokens that a step may verify; 0 is none, AS_CONFIGURED leaves it to the coordinator


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cancel(Message):
    """Client to coordinator: no more tokens of this request are wanted. Answered by Finished."""

    request: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prefilled(Message):
    """Coordinator to client: prompt rows read so far."""

    request: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Token(Message):
    """Coordinator to client: one generated token and the digests up to and including it."""

    request: str
    index: int  # 0 for the first generated token
    id: int
    sha256_logits: str  # hex, fp32 little-endian logits of positions 0..index
    elapsed_us: int  # since the previous token, or since the end of the prompt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finished(Message):
    """Coordinator to client: the answer is complete ("length", "stop", "cancelled"), with what it cost."""

    request: str
    reason: str
    prompt_us: int
    decode_us: int
    report: dict[str, Any]  # isa, threads, local_entries, workers; as Status.report


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestFailed(Message):
    """Coordinator to client: this request alone failed, and why."""

    request: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskStatus(Message):
    """Client to coordinator, no Hello needed. Answered by Status."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Status(Message):
    """Coordinator to client: state, members and counters, for people and tests."""

    report: dict[str, Any] = field(default_factory=dict)
