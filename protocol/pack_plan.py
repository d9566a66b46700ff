"""What a pack of a model will be: its header, and where each piece of its weights goes. Pure; nothing is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

import numpy as np

from protocol.errors import ModelError
from protocol.gguf import TensorInfo
from protocol.gguf_header import HEADER_LIMIT, HeaderTensor
from protocol.gguf_writer import entry, header
from protocol.layout import layer_of_experts
from protocol.messages import U8
from protocol.model import Model
from protocol.pack import (
    ALIGNMENT,
    DIGEST_BYTES,
    DIGESTS_KEY,
    EXPERTS_KEY,
    FINGERPRINT_KEY,
    GROUP_ROWS,
    PACKABLE,
    PACKED_TYPE,
    PREFIX,
    SHARE_KEY,
    SHARES_KEY,
    SOURCE_KEY,
    VERSION,
    VERSION_KEY,
    Share,
)
from protocol.shards import ModelFiles

PIECE_BYTES = 4 << 20
"""Of a tensor that are read, packed and written at one go, at most, unless a group of rows has more."""

HEADER = -1
"""The number of the header among the digests."""

_ALIGNMENT_KEY = "general.alignment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Whole groups of rows of one matrix, or the rows after them; of vectors and floats, any bytes."""

    start: int
    """Of the first byte, from the start of the tensor: the same in both files."""
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTensor:
    """One tensor of a model and its place in the pack."""

    source: TensorInfo
    number: int
    """Its place in the header."""
    offset: int
    """Of the first byte, from the start of the pack."""
    packed: bool
    experts: tuple[int, ...] | None
    """Those that go into the pack; None if all of the tensor does."""

    @property
    def matrices(self) -> int:
        """Experts, or 1."""
        return self.source.shape[2] if len(self.source.shape) > 2 else 1

    @property
    def bytes(self) -> int:
        """That go into the pack."""
        return self.source.bytes if self.experts is None else self.source.bytes // self.matrices * len(self.experts)

    def pieces(self) -> Iterator[Piece]:
        """All that goes into the pack, in ascending order."""
        matrix_bytes = self.source.bytes // self.matrices
        row_bytes = self.source.type.row_bytes(self.source.shape[0])
        group_bytes = row_bytes * GROUP_ROWS
        most = max(PIECE_BYTES // group_bytes, 1) * group_bytes
        for matrix in range(self.matrices) if self.experts is None else self.experts:
            start, end = matrix * matrix_bytes, (matrix + 1) * matrix_bytes
            for at in range(start, end, most):
                count = min(most, end - at)
                yield Piece(start=at, bytes=count, rows=count // row_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackPlan:
    """A pack, but for its weights and their digests."""

    header: bytes
    """All before the weights, with zeros for the digests."""
    digests: slice
    """Where in the header they are: its own, then those of the tensors."""
    size: int
    """Of the file, holes included."""
    tensors: tuple[PlannedTensor, ...]
    """Of which something is in the pack."""

    @property
    def bytes(self) -> int:
        """That are written."""
        return len(self.header) + sum(tensor.bytes for tensor in self.tensors)

    def digest_of(self, number: int) -> slice:
        """Where in the header the digest of a tensor is, by its number there, or the header's own."""
        start = self.digests.start + (1 + number) * DIGEST_BYTES
        return slice(start, start + DIGEST_BYTES)

    @classmethod
    def of(cls, model: Model, share: Share | None = None, there: U8 | None = None) -> Self:
        """A pack of a whole model, or of those experts that are `there` (layers, experts) in a `share` of it.

        ModelError if the model is a share itself.
        """
        model.files.check_whole("packs are made of a whole model, or of a whole pack of it")
        infos = [tensor for file in model.files.files for tensor in sorted(file.tensors.values(), key=_offset)]
        ends = accumulate((info.bytes for info in infos), lambda end, count: _aligned(end) + count, initial=0)
        offsets = [_aligned(end) for end in ends]
        stated = [
            HeaderTensor(
                name=info.name,
                shape=info.shape,
                type=int(info.type) + (PACKED_TYPE if _is_packed(info) else 0),
                offset=offset,
            )
            for info, offset in zip(infos, offsets, strict=False)
        ]
        entries = [*kept_entries(model.files), *_own(model, share, there, len(infos))]
        made = header(entries, stated, ALIGNMENT)
        if len(made) > HEADER_LIMIT:
            raise ModelError(f"{model.files.path}: its pack would have a header of {len(made)} bytes: too many")
        planned = (
            PlannedTensor(
                source=info,
                number=number,
                offset=len(made) + offset,
                packed=_is_packed(info),
                experts=None if there is None else _those_there(info, there),
            )
            for number, (info, offset) in enumerate(zip(infos, offsets, strict=False))
        )
        end = made.index(entries[-1]) + len(entries[-1])
        return cls(
            header=made,
            digests=slice(end - (1 + len(infos)) * DIGEST_BYTES, end),
            size=len(made) + offsets[len(infos) - 1] + infos[-1].bytes,
            tensors=tuple(tensor for tensor in planned if tensor.bytes),
        )


def _offset(tensor: TensorInfo) -> int:
    return tensor.offset


def _aligned(offset: int) -> int:
    return offset + -offset % ALIGNMENT


def _is_packed(info: TensorInfo) -> bool:
    return len(info.shape) > 1 and info.type in PACKABLE


def _those_there(info: TensorInfo, there: U8) -> tuple[int, ...]:
    layer = layer_of_experts(info.name)
    if layer is None or layer >= len(there):  # a file may have layers that its metadata does not count
        return ()
    return tuple(np.flatnonzero(there[layer]).tolist())


def kept_entries(files: ModelFiles) -> list[bytes]:
    """The keys and values that a model and its packs have in common, byte for byte. ModelError if the file shrank."""
    first = files.files[0]
    return [
        first.file.read(start, end - start)
        for key, (start, end) in first.header.entries.items()
        if not key.startswith(("split.", PREFIX)) and key != _ALIGNMENT_KEY
    ]


def _own(model: Model, share: Share | None, there: U8 | None, tensors: int) -> Iterator[bytes]:
    """The keys that make it a pack; the digests last."""
    pack = model.files.pack
    yield entry(_ALIGNMENT_KEY, ALIGNMENT)
    yield entry(VERSION_KEY, VERSION)
    yield entry(FINGERPRINT_KEY, model.fingerprint)
    yield entry(SOURCE_KEY, model.files.path.name if pack is None else pack.source)
    if share is not None and there is not None:
        yield entry(SHARE_KEY, share.number)
        yield entry(SHARES_KEY, share.count)
        yield entry(EXPERTS_KEY, there.ravel().astype(np.bool_))
    yield entry(DIGESTS_KEY, np.zeros((1 + tensors) * DIGEST_BYTES, np.uint8))
