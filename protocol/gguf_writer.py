"""The header of a GGUF file, written: metadata as it was read elsewhere or made here, and where the tensors lie."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from protocol.gguf_header import HeaderTensor

MAGIC = b"GGUF"
VERSION = 3
_U32, _U64 = Struct("<I"), Struct("<Q")
_BYTE_KIND, _U32_KIND, _BOOL_KIND, _STRING_KIND, _ARRAY_KIND = 0, 4, 7, 8, 9


def entry(key: str, value: int | str | NDArray[np.uint8] | NDArray[np.bool_]) -> bytes:
    """A key and its value: a 32-bit number, a string, or a 1-D array of bytes or bools."""
    match value:
        case int():
            return _string(key) + _U32.pack(_U32_KIND) + _U32.pack(value)
        case str():
            return _string(key) + _U32.pack(_STRING_KIND) + _string(value)
        case _:
            kind = _BOOL_KIND if value.dtype == np.bool_ else _BYTE_KIND
            stated = _U32.pack(_ARRAY_KIND) + _U32.pack(kind) + _U64.pack(len(value))
            return _string(key) + stated + value.astype(np.uint8).tobytes()


def header(entries: Sequence[bytes], tensors: Sequence[HeaderTensor], alignment: int) -> bytes:
    """Everything before the tensor data, which begins where this ends, at a multiple of `alignment`.

    `entries` are whole: key, type and value. One of them must state that alignment.
    """
    made = MAGIC + _U32.pack(VERSION) + _U64.pack(len(tensors)) + _U64.pack(len(entries)) + b"".join(entries)
    made += b"".join(map(_tensor, tensors))
    return made + bytes(-len(made) % alignment)


def _tensor(tensor: HeaderTensor) -> bytes:
    shape = b"".join(map(_U64.pack, tensor.shape))
    stated = _U32.pack(len(tensor.shape)) + shape + _U32.pack(tensor.type) + _U64.pack(tensor.offset)
    return _string(tensor.name) + stated


def _string(text: str) -> bytes:
    content = text.encode("utf-8")
    return _U64.pack(len(content)) + content
