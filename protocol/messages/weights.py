"""What travels on bulk: a model's files, to a worker that has not got them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from protocol.errors import ProtocolError
from protocol.keys import is_key
from protocol.messages.base import I64, U8, Message, Spec, at_least

MAX_PIECE_BYTES = 1 << 20
"""Of a file that travel in one message: a beat, or a layer's work, waits for one of them on the same line at most."""

MAX_DIGESTS = 64
"""Of one question: whoever answers reads as many pieces."""


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskDigests(Message):
    """Worker to weights process: what are these pieces, wherever I get them? Answered by Digests or PieceFailed."""

    fingerprint: str  # of the model that is meant
    file: int
    offset: Annotated[I64, Spec("i8", 1)]  # (pieces,)
    bytes: Annotated[I64, Spec("i8", 1)]  # (pieces,)

    def __post_init__(self) -> None:
        at_least(0, file=self.file)
        if not 1 <= len(self.offset) == len(self.bytes) <= MAX_DIGESTS:
            raise ProtocolError(f"1 to {MAX_DIGESTS} pieces expected, each with offset and bytes")
        if self.offset.min() < 0 or self.bytes.min() < 1 or self.bytes.max() > MAX_PIECE_BYTES:
            raise ProtocolError(f"offsets of 0 or more and bytes in 1..{MAX_PIECE_BYTES} expected")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Digests(Message):
    """Weights process to worker: of these pieces, as the coordinator's files have them."""

    file: int
    offset: Annotated[I64, Spec("i8", 1)]  # (pieces,): those of AskDigests
    sha256: Annotated[U8, Spec("u1", 2)]  # (pieces, 32)

    def __post_init__(self) -> None:
        at_least(0, file=self.file)
        if self.sha256.shape != (len(self.offset), 32):
            raise ProtocolError(f"32 bytes expected for each piece, found {self.sha256.shape}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferPieces(Message):
    """Weights process to weights process: I give what is in this cache, too. Answered by PieceFailed if unwanted."""

    fingerprint: str
    endpoint: str  # where it listens
    key: str  # public, which it proves to have there; empty: none
    have: Annotated[U8, Spec("u1", 2)]  # (layers, experts): 1 for those that are there

    def __post_init__(self) -> None:
        _check_keys(self.key)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskHolders(Message):
    """Worker to weights process: who else gives what is here? Answered by Holders or PieceFailed."""

    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Holders(Message):
    """Weights process to worker: these do, of those that have said so lately."""

    endpoints: list[str]
    keys: list[str]  # of each: as of OfferPieces
    have: Annotated[U8, Spec("u1", 3)]  # (endpoints, layers, experts): as of OfferPieces

    def __post_init__(self) -> None:
        if not len(self.endpoints) == len(self.keys) == len(self.have):
            found = f"{len(self.keys)} keys and {len(self.have)} sets of experts"
            raise ProtocolError(f"{len(self.endpoints)} endpoints, with {found}")
        _check_keys(*self.keys)


def _check_keys(*keys: str) -> None:
    """Whoever dials with one hands it to libzmq."""
    for key in keys:
        if key and not is_key(key):
            raise ProtocolError(f"a public key of 40 characters of Z85 is expected, or none, found {key[:60]!r}")
