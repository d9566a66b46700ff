"""An array of strings that stays in the file until somebody asks: vocabularies have hundreds of thousands."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct, error
from typing import overload

from protocol.errors import ModelError

LENGTH = Struct("<Q")


class StringArray(Sequence[str]):
    """GGUF strings (8 bytes length, then UTF-8), decoded one by one when read. ModelError if one is not UTF-8."""

    __slots__ = ("_buffer", "_name", "_starts")

    def __init__(self, name: str, buffer: memoryview, starts: array[int]) -> None:
        """`starts` has the offset of each string's length in `buffer`, and after them the end of the last string."""
        self._name = name
        self._buffer = buffer
        self._starts = starts

    @classmethod
    def walk(cls, name: str, buffer: memoryview, start: int, count: int) -> StringArray | None:
        """Find `count` strings from `start` on, or None if they do not fit into the buffer.

        The caller has made sure that the buffer has room for `count` lengths, which bounds the memory taken here.
        """
        length_at = LENGTH.unpack_from
        starts = array("Q", bytes(8 * (count + 1)))
        position = start
        try:
            for index in range(count):  # the hot loop of opening a model: a length far outside fails in the next turn
                starts[index] = position
                position += 8 + length_at(buffer, position)[0]
            starts[count] = position
        except (error, OverflowError):
            return None
        return cls(name, buffer, starts) if position <= len(buffer) else None

    @property
    def end(self) -> int:
        """Offset in the buffer after the last string."""
        return self._starts[-1]

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._decode(i) for i in range(*index.indices(len(self)))]
        return self._decode(range(len(self))[index])

    def __iter__(self) -> Iterator[str]:
        first = self._starts[0]
        copied = bytes(self._buffer[first : self._starts[-1]])  # slices of bytes cost half of those of a memoryview
        for index, (start, end) in enumerate(pairwise(self._starts)):
            try:
                yield copied[start - first + 8 : end - first].decode()
            except UnicodeDecodeError:
                yield self._decode(index)  # raises, with the name and the index

    def __repr__(self) -> str:
        return f"<{len(self)} strings of {self._name}>"

    def _decode(self, index: int) -> str:
        text = self._buffer[self._starts[index] + 8 : self._starts[index + 1]]
        try:
            return str(text, "utf-8")
        except UnicodeDecodeError as wrong:
            raise ModelError(f"{self._name}[{index}] is not UTF-8: {bytes(text[:40])!r} ({wrong.reason})") from None
