"""One GGUF file, used where it lies: metadata and tensors as views of a read-only mapping."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ModelError
from protocol.gguf_header import Header, HeaderTensor, parse_header, shorten
from protocol.gguf_metadata import Metadata
from protocol.mapped import MappedFile
from protocol.pack import PACKABLE, PACKED_TYPE, Pack
from protocol.quant_types import TensorType

DEFAULT_ALIGNMENT = 32
LEAST_ALIGNMENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """One tensor, and the file in which it lies."""

    name: str
    file: MappedFile
    type: TensorType
    shape: tuple[int, ...]
    """Columns first, as in the file: (columns, rows, matrices)."""
    offset: int
    """Of the first byte, from the start of the file."""
    bytes: int
    packed: bool = False
    """Whether groups of rows are interleaved (docs/packs.md); the bytes are as many."""

    @property
    def data(self) -> NDArray[np.uint8]:
        """Its bytes, a read-only 1-D view of the mapping."""
        return self.file.data[self.offset : self.offset + self.bytes]


class GgufFile:
    """An open model file. Every tensor has been found to lie inside the file and to overlap no other."""

    def __init__(self, file: MappedFile) -> None:
        """Reads and checks the header of `file`, which this object closes from then on. ModelError if it is unsound."""
        header = parse_header(file.path, file.data)
        self.file = file
        self.header = header
        self.version = header.version
        self.metadata = Metadata(file.path, header.metadata)
        self.pack = Pack.of(self.metadata, len(header.tensors))
        """What it says of itself if it is a pack."""
        self.alignment = self._alignment()
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(self._tensors(header))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Map a file and read its header. ModelError if that is impossible or anything in it is unsound."""
        file = MappedFile.open(path)
        try:
            return cls(file)
        except BaseException:
            file.close()
            raise

    @property
    def path(self) -> Path:
        """Where the file was found."""
        return self.file.path

    def close(self) -> None:
        """Give up the file. Views of it (tensors, metadata arrays) stay valid while they are held."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _alignment(self) -> int:
        found = self.metadata.integer("general.alignment", DEFAULT_ALIGNMENT)
        if found < LEAST_ALIGNMENT or found & (found - 1):
            raise ModelError(
                f"{self.path}: 'general.alignment' is {found}, expected a power of two of at least {LEAST_ALIGNMENT}"
            )
        return found

    def _tensors(self, header: Header) -> dict[str, TensorInfo]:
        data_start = -(-header.end // self.alignment) * self.alignment
        tensors: dict[str, TensorInfo] = {}
        for stated in header.tensors:
            if stated.name in tensors:
                raise ModelError(f"{self.path}: tensor {shorten(stated.name)} appears twice")
            try:
                tensors[stated.name] = self._checked(stated, data_start)
            except ValueError as error:
                raise ModelError(f"{self.path}: tensor {shorten(stated.name)}: {error}") from None
        self._check_overlaps(tensors.values())
        return tensors

    def _checked(self, stated: HeaderTensor, data_start: int) -> TensorInfo:
        """ValueError for whatever cannot be."""
        packed = self.pack is not None and len(stated.shape) > 1 and stated.type - PACKED_TYPE in PACKABLE
        try:
            kind = TensorType(stated.type - PACKED_TYPE if packed else stated.type)
        except ValueError:
            raise ValueError(f"type {stated.type} is not known") from None
        if 0 in stated.shape:
            raise ValueError(f"shape {stated.shape} has a dimension of 0")
        count = kind.row_bytes(stated.shape[0]) * math.prod(stated.shape[1:])
        start = data_start + stated.offset
        if stated.offset % self.alignment:
            raise ValueError(f"offset {stated.offset} is no multiple of the alignment {self.alignment}")
        if start + count > self.file.size:
            raise ValueError(
                f"{count} bytes ({kind.name}, shape {stated.shape}) at {start} end outside of the file of "
                f"{self.file.size} bytes: was it truncated?"
            )
        return TensorInfo(
            name=stated.name,
            file=self.file,
            type=kind,
            shape=stated.shape,
            offset=start,
            bytes=count,
            packed=packed,
        )

    def _check_overlaps(self, tensors: Iterable[TensorInfo]) -> None:
        for before, after in pairwise(sorted(tensors, key=lambda tensor: tensor.offset)):
            if before.offset + before.bytes > after.offset:
                raise ModelError(
                    f"{self.path}: tensors {shorten(before.name)} ({before.bytes} bytes at {before.offset}) and "
                    f"{shorten(after.name)} ({after.bytes} bytes at {after.offset}) overlap"
                )
