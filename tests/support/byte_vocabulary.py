"""Small byte-level vocabularies: a token for each byte, and whatever a test adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.byte_pairs import byte_alphabet
from coordinator.vocabulary import TokenType, Vocabulary

BYTE_TOKENS = tuple(byte_alphabet()[byte] for byte in range(256))
"""Id and byte are the same number."""


def merged(*merges: str) -> dict[str, TokenType]:
    """The tokens that these merges make, all normal."""
    return {merge.replace(" ", ""): TokenType.NORMAL for merge in merges}


def byte_vocabulary(
    more: Mapping[str, TokenType] | None = None, merges: Sequence[str] = (), **settings: Any
) -> Vocabulary:
    """The bytes, then the tokens that `merges` make, then `more`; `settings` replace fields of Vocabulary."""
    added = {**merged(*merges), **(more or {})}
    fields: dict[str, Any] = {
        "source": "small.gguf",
        "tokens": (*BYTE_TOKENS, *added),
        "types": bytes([TokenType.NORMAL] * 256 + list(added.values())),
        "merges": tuple(merges),
        "pre": "qwen2",
    }
    return Vocabulary(**{**fields, **settings})
