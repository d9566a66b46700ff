"""Byte-level BPE through the `tokenizers` library, from a vocabulary that is checked first.

The bytes of a word are written in a printable alphabet, one character each, and merged pair by pair.
"""

from __future__ import annotations

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from coordinator.pretokenizers import PreTokenizer
from coordinator.vocabulary import Vocabulary
from protocol.errors import ModelError

UTF8_BYTES = frozenset(range(0xF5)) - {0xC0, 0xC1}
"""The bytes that text has in UTF-8; each must be a token, or some text could not be told to the model."""


def byte_alphabet() -> dict[int, str]:
    """The printable character that stands for each byte in a token's text, as GPT-2 chose them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def token_ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Id of each token text. ModelError if one text has two, or a byte of text has none."""
    ids = dict(zip(vocabulary.tokens, range(len(vocabulary.tokens)), strict=True))
    if len(ids) != len(vocabulary.tokens):
        first, text = next((id, text) for id, text in enumerate(vocabulary.tokens) if ids[text] != id)
        raise ModelError(f"{vocabulary.source}: tokens {first} and {ids[text]} are the same, {text!r}")
    alphabet = byte_alphabet()
    missing = [f"0x{byte:02x}" for byte in sorted(UTF8_BYTES) if alphabet[byte] not in ids]
    if missing:
        raise ModelError(
            f"{vocabulary.source}: {len(missing)} of the {len(UTF8_BYTES)} bytes that text is made of have no token: "
            f"{', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}"
        )
    return ids


def byte_pair_encoder(vocabulary: Vocabulary, ids: dict[str, int], pre: PreTokenizer) -> tokenizers.Tokenizer:
    """What turns text without special tokens into ids. ModelError if a merge cannot be."""
    pairs = [tuple(merge.split(" ")) for merge in dict.fromkeys(vocabulary.merges)]  # the first of two alike counts
    try:
        model = models.BPE(vocab=ids, merges=pairs, ignore_merges=pre.ignore_merges)  # type: ignore[arg-type]
    except Exception as error:  # the library checks each merge, quickly, but has no narrower class and names none
        raise _bad_merge(vocabulary, ids) or ModelError(f"{vocabulary.source}: {error}") from None
    encoder = tokenizers.Tokenizer(model)
    encoder.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return encoder


def _bad_merge(vocabulary: Vocabulary, ids: dict[str, int]) -> ModelError | None:
    """What is wrong with the first merge that cannot be."""
    for index, merge in enumerate(vocabulary.merges):
        at, pair = f"{vocabulary.source}: merge {index}, {merge!r},", merge.split(" ")
        if len(pair) != 2:
            return ModelError(f"{at} is not two tokens with a space between")
        for text in (*pair, "".join(pair)):
            if text not in ids:
                return ModelError(f"{at} needs {text!r}, which is not a token")
    return None
