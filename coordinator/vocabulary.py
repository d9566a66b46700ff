"""What a GGUF says about its tokenizer, as plain values that have been checked."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from protocol.errors import ModelError
from protocol.gguf_metadata import Metadata
from protocol.gguf_strings import StringArray

log = logging.getLogger(__name__)

MODEL = "gpt2"
"""Byte-level BPE, the only kind of tokenizer that can be read."""

_PREFIX = "tokenizer.ggml."
_NAMED = ("bos", "eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")


class TokenType(IntEnum):
    """What a token is for, with GGUF's numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3  # steers the model and is not text
    USER_DEFINED = 4  # text that is always one token
    UNUSED = 5  # fills up the table
    BYTE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Tokens in the order of their ids, and how they are put to use. ModelError if the parts do not fit together."""

    source: str
    """Where it comes from; errors start with it."""
    tokens: tuple[str, ...]
    """Bytes in the printable alphabet of GPT-2; control and user-defined tokens as they are."""
    types: bytes
    """A TokenType for each token."""
    merges: tuple[str, ...]
    """Pairs of tokens with a space between, first come first merged."""
    pre: str
    """Name of the pre-tokenizer."""
    named: Mapping[str, int] = field(default_factory=dict)
    """Ids that the file names: "bos", "eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"."""
    add_bos: bool | None = None
    """None leaves it to the pre-tokenizer."""
    add_eos: bool = False

    def __post_init__(self) -> None:
        if not self.tokens:
            raise ModelError(f"{self.source}: the vocabulary is empty")
        if len(self.types) != len(self.tokens):
            raise ModelError(f"{self.source}: {len(self.types)} token types found for {len(self.tokens)} tokens")
        wrong = np.flatnonzero(~np.isin(np.frombuffer(self.types, np.uint8), list(TokenType)))
        if wrong.size:
            raise ModelError(
                f"{self.source}: token {wrong[0]} ({self.tokens[wrong[0]]!r}) has type {self.types[wrong[0]]}, "
                f"expected {TokenType.NORMAL:d} to {TokenType.BYTE:d}"
            )
        for name, id in self.named.items():
            if not 0 <= id < len(self.tokens):
                raise ModelError(
                    f"{self.source}: '{_PREFIX}{name}_token_id' is {id}, expected 0 to {len(self.tokens) - 1}"
                )

    @classmethod
    def of(cls, metadata: Metadata) -> Vocabulary:
        """Read it from the file's metadata. ModelError if the tokenizer is of another kind, or anything is amiss."""
        source, model = str(metadata.path), metadata.text(_PREFIX + "model")
        if model != MODEL:
            raise ModelError(
                f"{source}: tokenizer model {model!r} (key '{_PREFIX}model') is not supported, "
                f"expected {MODEL!r} (byte-level BPE)"
            )
        tokens = _strings(metadata, "tokens")
        named = {name: metadata.integer(f"{_PREFIX}{name}_token_id", None) for name in _NAMED}
        return cls(
            source=source,
            # an empty text could be found anywhere
            tokens=tuple(text or f"[EMPTY_{id}]" for id, text in enumerate(tokens)),
            types=_types(metadata, len(tokens)),
            merges=_strings(metadata, "merges"),
            pre=_pre(metadata),
            named={name: id for name, id in named.items() if id is not None},
            add_bos=metadata.flag(_PREFIX + "add_bos_token", None),
            add_eos=metadata.flag(_PREFIX + "add_eos_token", False),
        )


def _strings(metadata: Metadata, name: str) -> tuple[str, ...]:
    found = metadata.get(_PREFIX + name)
    if not isinstance(found, StringArray):
        what = "is missing" if found is None else "is not an array of strings"
        raise ModelError(f"{metadata.path}: key '{_PREFIX}{name}' {what}")
    return tuple(found)


def _types(metadata: Metadata, count: int) -> bytes:
    """One byte for each token; a file without types has normal tokens only."""
    found = metadata.get(_PREFIX + "token_type")
    if found is None:
        return bytes([TokenType.NORMAL]) * count
    if not isinstance(found, np.ndarray) or not np.issubdtype(found.dtype, np.integer):
        raise ModelError(f"{metadata.path}: key '{_PREFIX}token_type' is not an array of integers")
    return np.clip(found, 0, 255).astype(np.uint8).tobytes()  # what is clipped is no type either way


def _pre(metadata: Metadata) -> str:
    found = metadata.text(_PREFIX + "pre", None)
    if found is None:
        log.warning(
            "%s does not say how its tokenizer cuts words (key '%spre'): 'default' is assumed, as llama.cpp does; "
            "a newer conversion of the model may write better text",
            metadata.path,
            _PREFIX,
        )
    return found or "default"
