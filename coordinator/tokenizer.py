"""Text to token ids and back, as the model file says: byte-level BPE.

Nothing is normalised: the bytes of the ids that a text gives are the bytes of the text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from coordinator.byte_pairs import byte_alphabet, byte_pair_encoder, token_ids
from coordinator.pretokenizers import pre_tokenizer
from coordinator.special_tokens import control_ids, stop_ids
from coordinator.vocabulary import TokenType, Vocabulary
from protocol.errors import ModelError, RequestError
from protocol.gguf_metadata import Metadata

log = logging.getLogger(__name__)

_BYTE_TEXT = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_BYTES = {character: byte for byte, character in byte_alphabet().items()}


class Tokenizer:
    """The tokenizer of one model. It has no state: any thread may use it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """ModelError, in words for the file's user, if the vocabulary is unsound or of an unsupported kind."""
        pre = pre_tokenizer(vocabulary.source, vocabulary.pre)
        ids = token_ids(vocabulary)
        self.size = len(vocabulary.tokens)
        """Number of tokens: ids are 0 to size - 1."""
        self.stop_ids = stop_ids(ids, vocabulary.named)
        """Ascending ids after which an answer ends."""
        self._encoder = byte_pair_encoder(vocabulary, ids, pre)
        self._tokens = vocabulary.tokens
        self._longest = max(map(len, vocabulary.tokens))
        self._types = _types(vocabulary, control_ids(ids))
        self._special = _special(self._tokens, self._types)
        add_bos = pre.add_bos if vocabulary.add_bos is None else vocabulary.add_bos
        self._start = _named(vocabulary, "bos") if add_bos else []
        self._end = _named(vocabulary, "eos") if vocabulary.add_eos else []

    @classmethod
    def of(cls, metadata: Metadata) -> Tokenizer:
        """The tokenizer of an open model file. ModelError if it is unsound or of an unsupported kind."""
        return cls(Vocabulary.of(metadata))

    def encode(self, text: str, parse_special: bool = True) -> list[int]:
        """Token ids of a text, between the BOS and EOS tokens where the file says to add them.

        With `parse_special`, text that spells a control token becomes that token; without, it stays text, so that
        people cannot write control tokens. User-defined tokens are found in either case. RequestError if the text
        has a character that Unicode text cannot have (half a surrogate pair).
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"character {error.start} of the text is {text[error.start]!r}, half of a surrogate pair: not text"
            ) from None
        ids = list(chain.from_iterable(self._encoded(part) for part in self._parts(text, parse_special)))
        if self._start and ids[:1] == self._start:
            log.warning("the text starts with the BOS token %r, and the model adds another", self._tokens[ids[0]])
        return [*self._start, *ids, *self._end]

    def least_tokens(self, text: str) -> int:
        """A number of tokens that `encode` never stays below, known at once: no token stands for more characters than
        it has itself."""
        return -(-len(text) // self._longest)

    def token_bytes(self, id: int) -> bytes:
        """What a token adds to the bytes of the text: its own text for control and user-defined tokens, nothing for an
        unused one. RequestError if there is no such id."""
        self.check_ids([id])
        text, kind = self._tokens[id], self._types[id]
        if kind == TokenType.UNUSED:
            return b""
        if kind == TokenType.BYTE and (match := _BYTE_TEXT.fullmatch(text)):
            return bytes([int(match[1], 16)])
        if kind in (TokenType.NORMAL, TokenType.BYTE) and _BYTES.keys() >= set(text):
            return bytes(map(_BYTES.__getitem__, text))
        return text.encode()

    def is_control(self, id: int) -> bool:
        """True if the token is no part of the text that people read. RequestError if there is no such id."""
        self.check_ids([id])
        return self._types[id] in (TokenType.CONTROL, TokenType.UNKNOWN)

    def check_ids(self, ids: Sequence[int]) -> None:
        """RequestError that names the first id that is not a token's."""
        for index, id in enumerate(ids):
            if not 0 <= id < self.size:
                raise RequestError(f"token id {id} at index {index} is not in 0..{self.size - 1}")

    def _parts(self, text: str, parse_special: bool) -> list[str | int]:
        """The text cut at its special tokens: longer ones first, wherever they are, as llama.cpp does."""
        parts: list[str | int] = [text] if text else []
        for special, id in self._special:
            if special in text and (parse_special or self._types[id] == TokenType.USER_DEFINED):
                parts = [piece for part in parts for piece in _cut(part, special, id)]
        return parts

    def _encoded(self, part: str | int) -> list[int]:
        return [part] if isinstance(part, int) else self._encoder.encode(part, add_special_tokens=False).ids


def _cut(part: str | int, special: str, id: int) -> Iterator[str | int]:
    if isinstance(part, int):
        yield part
        return
    for index, piece in enumerate(part.split(special)):
        if index:
            yield id
        if piece:
            yield piece


def _types(vocabulary: Vocabulary, control: set[int]) -> bytes:
    types = bytearray(vocabulary.types)
    for id in control:
        types[id] = TokenType.CONTROL
    return bytes(types)


def _special(tokens: Sequence[str], types: bytes) -> list[tuple[str, int]]:
    """Text and id of the tokens that are found in the text before anything else, longest first."""
    kinds = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)
    special = [(tokens[id], id) for id, kind in enumerate(types) if kind in kinds]
    return sorted(special, key=lambda item: (-len(item[0].encode()), item[1]))


def _named(vocabulary: Vocabulary, name: str) -> list[int]:
    """The id of the token that is added to texts."""
    if name not in vocabulary.named:
        raise ModelError(
            f"{vocabulary.source}: a {name.upper()} token is to be added to texts "
            f"but the key 'tokenizer.ggml.{name}_token_id' is missing"
        )
    return [vocabulary.named[name]]
