"""The header of a GGUF file, versions 2 and 3, read from memory that may hold anything.

Every size and count is compared with what is left before it is believed, so that a hostile header costs no more time
and memory than a real one of its length. Whatever is wrong is a ModelError.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ModelError
from protocol.gguf_strings import LENGTH, StringArray

HEADER_LIMIT = 64 << 20
"""Bytes a header may take: several times the largest vocabularies."""

MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_TEXT = 16 << 20
"""Bytes of a single string, chat templates for example."""

MAX_NAME = (1 << 16) - 1
"""Bytes of a key or of a tensor's name, by the format's own rule for keys."""

MAX_DIMENSIONS = 4
_LEAST_KEY_BYTES = 8 + 4 + 1  # empty name, type, one byte
_LEAST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8  # empty name, one dimension, type, offset

_PROLOGUE = Struct("<4sIQQ")
_TENSORS = [Struct(f"<{dimensions}QIQ") for dimensions in range(MAX_DIMENSIONS + 1)]
_U32 = Struct("<I")

_BOOL, _STRING, _ARRAY = 7, 8, 9
_NUMBERS = {
    0: Struct("<B"),
    1: Struct("<b"),
    2: Struct("<H"),
    3: Struct("<h"),
    4: Struct("<I"),
    5: Struct("<i"),
    6: Struct("<f"),
    10: Struct("<Q"),
    11: Struct("<q"),
    12: Struct("<d"),
}
_DTYPES = {number: np.dtype(layout.format) for number, layout in _NUMBERS.items()} | {_BOOL: np.dtype(np.uint8)}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderTensor:
    """A tensor as the header states it; nothing but the number of dimensions has been checked."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int  # from the start of the tensor data


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Everything before the tensor data, and where it ends in the file."""

    version: int
    metadata: dict[str, Any]
    entries: dict[str, tuple[int, int]]
    """Where in the file each key begins, and where its value ends."""
    tensors: list[HeaderTensor]
    end: int


def parse_header(path: object, data: NDArray[np.uint8]) -> Header:
    """Read the header at the start of `data` (all bytes of the file at `path`, which only errors name).

    Metadata arrays are views of `data`. ModelError for anything that is not a whole and sound header.
    """
    cursor = _Cursor(path, data)
    version, tensors, keys = cursor.prologue()
    metadata: dict[str, Any] = {}
    entries: dict[str, tuple[int, int]] = {}
    for number in range(keys):
        start = cursor.position
        key = cursor.text(f"key {number}", MAX_NAME)
        if key in metadata:
            raise cursor.wrong(f"key {shorten(key)} appears twice")
        metadata[key] = cursor.value(cursor.u32(f"the type of {shorten(key)}"), shorten(key))
        entries[key] = start, cursor.position
    infos = cursor.tensors(tensors)
    return Header(version=version, metadata=metadata, entries=entries, tensors=infos, end=cursor.position)


def shorten(text: str) -> str:
    """A name from a file, fit to be shown: quoted, escaped, and not longer than a line."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


class _Cursor:
    """Reads one thing after the other; `position` is where the next one starts."""

    def __init__(self, path: object, data: NDArray[np.uint8]) -> None:
        self._path = path
        self._buffer = data.data[:HEADER_LIMIT]
        self._cut = len(data) > HEADER_LIMIT
        self.position = 0

    def wrong(self, text: str) -> ModelError:
        return ModelError(f"{self._path}: {text}")

    def _outside(self, what: str) -> ModelError:
        if self._cut:
            return self.wrong(f"{what} lies outside of the first {HEADER_LIMIT} bytes, more than a header may take")
        return self.wrong(f"{what} lies outside of the file of {len(self._buffer)} bytes: was it truncated?")

    def _take(self, count: int, what: str) -> int:
        """Step over `count` bytes and return where they start, or raise if they are not all there."""
        start = self.position
        if count > len(self._buffer) - start:
            raise self._outside(what)
        self.position = start + count
        return start

    def _check_count(self, count: int, limit: int, least_bytes: int, what: str) -> None:
        if count > limit:
            raise self.wrong(f"{count} {what} stated, at most {limit} can be read")
        if count * least_bytes > len(self._buffer) - self.position:
            raise self._outside(f"part of the {count} {what} stated")

    def prologue(self) -> tuple[int, int, int]:
        """Version, number of tensors, number of metadata keys."""
        magic = bytes(self._buffer[:4])
        if magic != b"GGUF":
            raise self.wrong(f"not a GGUF file: it starts with {magic!r}, expected b'GGUF'")
        version, tensors, keys = _PROLOGUE.unpack_from(self._buffer, self._take(_PROLOGUE.size, "the header"))[1:]
        if version & 0xFFFF == 0 and version:
            raise self.wrong("a big-endian GGUF file; only little-endian ones can be read")
        if version not in (2, 3):
            raise self.wrong(f"GGUF version {version} found, expected 2 or 3")
        self._check_count(keys, MAX_KEYS, _LEAST_KEY_BYTES, "metadata keys")
        self._check_count(tensors, MAX_TENSORS, _LEAST_TENSOR_BYTES, "tensors")
        return version, tensors, keys

    def u32(self, what: str) -> int:
        found: int = _U32.unpack_from(self._buffer, self._take(4, what))[0]
        return found

    def _u64(self, what: str) -> int:
        found: int = LENGTH.unpack_from(self._buffer, self._take(8, what))[0]
        return found

    def text(self, what: str, limit: int) -> str:
        length = self._u64(f"the length of {what}")
        if length > limit:
            raise self.wrong(f"{what} is {length} bytes long, at most {limit} can be read")
        start = self._take(length, what)
        found = self._buffer[start : self.position]
        try:
            return str(found, "utf-8")
        except UnicodeDecodeError as error:
            raise self.wrong(f"{what} is not UTF-8: {bytes(found[:40])!r} ({error.reason})") from None

    def value(self, kind: int, key: str) -> Any:
        """One metadata value: int, float, bool, str, a numpy array or a StringArray."""
        if kind == _STRING:
            return self.text(f"the value of {key}", MAX_TEXT)
        if kind == _ARRAY:
            return self._array(key)
        if kind == _BOOL:
            byte = self._buffer[self._take(1, f"the value of {key}")]
            if byte > 1:
                raise self.wrong(f"the value of {key} is {byte}, expected a bool of 0 or 1")
            return bool(byte)
        if kind not in _NUMBERS:
            raise self.wrong(f"{key} has value type {kind}, which GGUF does not define")
        layout = _NUMBERS[kind]
        return layout.unpack_from(self._buffer, self._take(layout.size, f"the value of {key}"))[0]

    def _array(self, key: str) -> StringArray | NDArray[Any]:
        kind, count = self.u32(f"the element type of {key}"), self._u64(f"the length of {key}")
        if kind == _ARRAY:
            raise self.wrong(f"{key} is an array of arrays, which no model needs and this reader refuses")
        if kind == _STRING:
            return self._strings(key, count)
        if kind not in _DTYPES:
            raise self.wrong(f"{key} has element type {kind}, which GGUF does not define")
        start = self._take(count * _DTYPES[kind].itemsize, f"part of the {count} values of {key}")
        found = np.asarray(self._buffer[start : self.position]).view(_DTYPES[kind])
        if kind != _BOOL:
            return found
        if found.size and found.max() > 1:
            raise self.wrong(f"an element of {key} is {found.max()}, expected bools of 0 or 1")
        return found.view(np.bool_)

    def _strings(self, key: str, count: int) -> StringArray:
        if count * LENGTH.size > len(self._buffer) - self.position:
            raise self._outside(f"part of the {count} strings of {key}")
        found = StringArray.walk(f"{self._path}: {key}", self._buffer, self.position, count)
        if found is None:
            raise self._outside(f"part of the {count} strings of {key}")
        self.position = found.end
        return found

    def tensors(self, count: int) -> list[HeaderTensor]:
        return [self._tensor(number) for number in range(count)]

    def _tensor(self, number: int) -> HeaderTensor:
        name = self.text(f"the name of tensor {number}", MAX_NAME)
        what = f"tensor {shorten(name)}"
        dimensions = self.u32(what)
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise self.wrong(f"{what} has {dimensions} dimensions, expected 1 to {MAX_DIMENSIONS}")
        layout = _TENSORS[dimensions]
        *shape, kind, offset = layout.unpack_from(self._buffer, self._take(layout.size, what))
        return HeaderTensor(name=name, shape=tuple(shape), type=kind, offset=offset)
