"""A model's files in a folder of this machine, of which only some pieces are there: sparse, like shares of a pack."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from expert_worker.weights.grid import VERSION, Grid, Piece
from expert_worker.weights.marks import Marks
from protocol.errors import RoomError
from protocol.messages import I64, U8
from protocol.model import Model
from protocol.write_all import write_all

COMMIT_BYTES = 32 << 20
"""Are written before they are brought to the disk and marked: what a power failure costs at most."""
BLOCK_BYTES = 4096
"""Of a disk: a piece that begins within one takes one more."""
SETTLED_NS = 10**18
"""The modification time of all files in a cache, so that looking whether somebody changed them stays cheap."""


class Cache:
    """The folder of one model, for one process; others may share it. Methods are of one thread."""

    def __init__(self, model: Model) -> None:
        """`model`, opened as one that is being filled, stays open. OSError if the folder cannot be written."""
        self._infos = [file.file for file in model.files.files]
        self.folder = self._infos[0].path.parent
        self.grid = Grid(model.layout, [file.path.name for file in self._infos])
        self._marks = Marks(marks_path(self.folder), self.grid.count)
        self._files = [os.open(file.path, os.O_RDWR | os.O_CLOEXEC) for file in self._infos]
        self._numbers: dict[Piece, int] | None = None  # for whoever is asked for pieces
        self._written: list[int] = []
        self._written_bytes = 0

    def missing(self, layer: int, experts: NDArray[np.integer[Any]]) -> list[int]:
        """The pieces of these experts (n,) that are not there."""
        there, first = self._marks.read(self.grid.span(layer)), self.grid.span(layer).start
        return [number for number in self.grid.of(layer, experts).tolist() if not there[number - first]]

    def missing_bytes(self, wanted: U8) -> int:
        """Of the pieces of `wanted` experts (layers, experts)."""
        return self.grid.missing_bytes(self._marks.read(), wanted)

    def room_for(self, wanted: U8) -> int:
        """Bytes that these take on the disk, at most."""
        return self.grid.missing_bytes(self._marks.read(), wanted, BLOCK_BYTES)

    def has(self, number: int) -> bool:
        """Whether a piece is there, on the disk."""
        return self._marks.has(number)

    def has_piece(self, file: int, offset: int, count: int) -> bool:
        """Whether these bytes are a piece, and there."""
        if self._numbers is None:
            self._numbers = {piece: number for number, piece in enumerate(self.grid.ranges())}
        number = self._numbers.get(Piece(file=file, offset=offset, bytes=count))
        return number is not None and self.has(number)

    def there(self) -> U8:
        """(layers, experts): 1 for those of which every piece is there."""
        return self.grid.whole(self._marks.read())

    def claim(self, number: int) -> bool:
        """See `Marks.claim`."""
        return self._marks.claim(number)

    def give_up(self, numbers: Iterable[int]) -> None:
        """See `Marks.give_up`."""
        for number in numbers:
            self._marks.give_up(number)

    def fitting(self, seed: int) -> U8 | None:
        """(layers, experts): 1 for those that the disk has room for, those that are there among them; None: for all.

        As many of every layer. Another `seed` chooses others, so that machines with small disks together have all.
        """
        there = self.there()
        room = self._free() // 20 * 19
        if self.room_for(np.ones_like(there)) <= room:
            return None
        turns = np.random.default_rng(seed).random(there.shape).argsort(axis=1).T  # one of each layer, then another
        for layer, expert in ((layer, expert) for turn in turns.tolist() for layer, expert in enumerate(turn)):
            count = int((self.grid.lengths(layer) + BLOCK_BYTES).sum())
            if count and not there[layer, expert] and count <= room:
                there[layer, expert] = 1
                room -= count
        return there

    def check_room(self, needed: int) -> None:
        """RoomError unless the disk has room for so many bytes more."""
        free = self._free()
        if free < needed:
            raise RoomError(
                f"{self.folder}: {_mib(needed)} more are needed for the weights of the assigned experts, "
                f"{_mib(free)} are free on that disk"
            )

    def write(self, number: int, data: U8) -> None:
        """Put a sound piece in its place; it counts as there after `commit`. RoomError if it cannot be written."""
        piece = self.grid.piece(number)
        try:
            write_all(self._files[piece.file], data.data, piece.offset)
        except OSError as error:
            raise self._in_words(error) from None
        self._written.append(number)
        self._written_bytes += piece.bytes
        if self._written_bytes >= COMMIT_BYTES:
            self.commit()

    def commit(self) -> None:
        """Bring what was written to the disk, then mark it, so that no mark is ever ahead of its bytes."""
        if not self._written:
            return
        try:
            for file in {self.grid.piece(number).file for number in self._written}:
                os.fdatasync(self._files[file])
                os.utime(self._files[file], ns=(SETTLED_NS, SETTLED_NS))
            self._marks.set(self._written)
        except OSError as error:
            raise self._in_words(error) from None
        self.give_up(self._written)
        self._written, self._written_bytes = [], 0

    def forget_holes(self) -> int:
        """Take back the marks of pieces that lie in holes, as of files that were copied by somebody; how many."""
        lost: list[int] = []
        marked = np.flatnonzero(self._marks.read())
        pieces = np.array([self.grid.piece(number) for number in marked.tolist()], np.int64).reshape(-1, 3)
        for index, file in enumerate(self._infos):
            here = pieces[:, 0] == index
            holes = np.array(list(file.holes()), np.int64).reshape(-1, 2)
            lost += marked[here][_touches(pieces[here], holes)].tolist()
        self._marks.clear(lost)
        return len(lost)

    def close(self) -> None:
        """What was written and not committed is fetched again. May be called again."""
        self._marks.close()
        for file in self._files:
            os.close(file)
        self._files = []

    def _free(self) -> int:
        state = os.statvfs(self.folder)
        return state.f_bavail * state.f_frsize

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _in_words(self, error: OSError) -> RoomError:
        return RoomError(f"{self.folder}: weights cannot be written: {error.strerror or error}")


def marks_path(folder: Path) -> Path:
    """Where the marks of a folder are: a name that no model's file has here."""
    return folder / f".pieces-{VERSION}"


def _touches(pieces: I64, holes: I64) -> NDArray[np.bool_]:
    """(n,): True for pieces (file, offset, bytes) with a byte in one of the `holes` (start, end), which ascend."""
    if not len(holes):
        return np.zeros(len(pieces), np.bool_)
    starts, ends = pieces[:, 1], pieces[:, 1] + pieces[:, 2]
    first = np.searchsorted(holes[:, 1], starts, "right")  # the first hole that ends behind the start
    touching: NDArray[np.bool_] = np.append(holes[:, 0], np.iinfo(np.int64).max)[first] < ends
    return touching


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"
