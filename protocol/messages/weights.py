"""What travels on bulk: a model's files, to a worker that has not got them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from protocol.errors import ProtocolError
from protocol.messages.base import U8, Message, Spec, at_least

MAX_PIECE_BYTES = 1 << 20
"""Of a file that travel in one message: a beat, or a layer's work, waits for one of them on the same line at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskModel(Message):
    """Worker to weights process: which model is it? Answered by ModelOffer, Refused or PieceFailed."""

    protocol: int  # a refusal names both numbers; so this message never changes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelOffer(Message):
    """Weights process to worker: this model, whose files are to be had in pieces."""

    fingerprint: str
    names: list[str]  # of its files, in their order, without a folder
    sizes: list[int]  # bytes of each
    heads: list[int]  # bytes before the first weights of each

    def __post_init__(self) -> None:
        if not 1 <= len(self.names) == len(self.sizes) == len(self.heads):
            raise ProtocolError("one file at least, each with name, size and head")
        if not all(0 < head <= size for head, size in zip(self.heads, self.sizes, strict=True)):
            raise ProtocolError("heads must lie within their files")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FetchPiece(Message):
    """Worker to weights process: send these bytes. Answered by PieceBytes or PieceFailed."""

    fingerprint: str  # of the model that is meant
    file: int  # its place in ModelOffer
    offset: int
    bytes: int

    def __post_init__(self) -> None:
        at_least(0, file=self.file, offset=self.offset)
        if not 1 <= self.bytes <= MAX_PIECE_BYTES:
            raise ProtocolError(f"bytes must lie in 1..{MAX_PIECE_BYTES}, found {self.bytes}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PieceBytes(Message):
    """Weights process to worker: what the file has there."""

    file: int
    offset: int
    sha256: str  # hex, of the data as it was read
    data: Annotated[U8, Spec("u1", 1)]

    def __post_init__(self) -> None:
        at_least(0, file=self.file, offset=self.offset)
        if not 1 <= len(self.data) <= MAX_PIECE_BYTES:
            raise ProtocolError(f"1 to {MAX_PIECE_BYTES} bytes expected, found {len(self.data)}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PieceFailed(Message):
    """Weights process to worker: these bytes are not to be had here, and why."""

    file: int
    offset: int
    reason: str
