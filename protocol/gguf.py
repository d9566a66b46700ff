"""A GGUF model file, used where it lies: metadata and tensors as views of one read-only mapping."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ModelError
from protocol.gguf_header import Header, HeaderTensor, parse_header, shorten
from protocol.mapped import MappedFile
from protocol.quant_types import TensorType

DEFAULT_ALIGNMENT = 32
LEAST_ALIGNMENT = 8

D = TypeVar("D")
K = TypeVar("K")
_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """One tensor of a file."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    """Columns first, as in the file: (columns, rows, matrices)."""
    offset: int
    """Of the first byte, from the start of the file."""
    bytes: int


class GgufFile:
    """An open model file. Every tensor has been found to lie inside the file and to overlap no other."""

    def __init__(self, file: MappedFile) -> None:
        """Reads and checks the header of `file`, which this object closes from then on. ModelError if it is unsound."""
        header = parse_header(file.path, file.data)
        self.file = file
        self.version = header.version
        self.metadata: Mapping[str, Any] = MappingProxyType(header.metadata)
        """Scalars as int, float, bool or str; arrays as read-only numpy arrays or a `StringArray`."""
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

    def tensor(self, name: str) -> TensorInfo:
        """What the file says of a tensor. ModelError if it has none of that name."""
        if name not in self.tensors:
            raise ModelError(f"{self.path}: tensor {shorten(name)} is missing")
        return self.tensors[name]

    def tensor_data(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor, a read-only 1-D view. ModelError if it is missing."""
        tensor = self.tensor(name)
        return self.file.data[tensor.offset : tensor.offset + tensor.bytes]

    def text(self, key: str, default: D = _REQUIRED) -> str | D:
        """A string. ModelError if the value is of another type, or missing and no default was given."""
        return self._value(key, str, "a string", default)

    def integer(self, key: str, default: D = _REQUIRED) -> int | D:
        """An integer of any width. Errors as for `text`."""
        return self._value(key, int, "an integer", default)

    def number(self, key: str, default: D = _REQUIRED) -> float | D:
        """A float or an integer, as float. Errors as for `text`."""
        if type(self.metadata.get(key)) is int:
            return float(self.metadata[key])
        return self._value(key, float, "a number", default)

    def flag(self, key: str, default: D = _REQUIRED) -> bool | D:
        """A bool. Errors as for `text`."""
        return self._value(key, bool, "a bool", default)

    def close(self) -> None:
        """Give up the file. Views of it (tensors, metadata arrays) stay valid while they are held."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _value(self, key: str, kind: type[K], expected: str, default: D) -> K | D:
        found = self.metadata.get(key, _REQUIRED)
        if found is _REQUIRED:
            if default is _REQUIRED:
                raise ModelError(f"{self.path}: key {shorten(key)} is missing")
            return default
        if type(found) is not kind:  # isinstance would take a bool for an integer
            raise ModelError(f"{self.path}: key {shorten(key)} is {_describe(found)}, expected {expected}")
        return found

    def _alignment(self) -> int:
        found = self.integer("general.alignment", DEFAULT_ALIGNMENT)
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
        try:
            kind = TensorType(stated.type)
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
        return TensorInfo(name=stated.name, type=kind, shape=stated.shape, offset=start, bytes=count)

    def _check_overlaps(self, tensors: Iterable[TensorInfo]) -> None:
        for before, after in pairwise(sorted(tensors, key=lambda tensor: tensor.offset)):
            if before.offset + before.bytes > after.offset:
                raise ModelError(
                    f"{self.path}: tensors {shorten(before.name)} ({before.bytes} bytes at {before.offset}) and "
                    f"{shorten(after.name)} ({after.bytes} bytes at {after.offset}) overlap"
                )


def _describe(found: object) -> str:
    if isinstance(found, str):
        return f"the string {shorten(found)}"
    return f"{type(found).__name__} {found}" if isinstance(found, (bool, int, float)) else "an array"
