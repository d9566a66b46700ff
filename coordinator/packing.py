"""Making a pack of a model: piece by piece into a file beside it, which takes its name when it is complete.

The unfinished file is the pack itself but for its first bytes, which say so, and what is still missing. The digest of a
tensor stands in its header as soon as the tensor is complete: who goes on trusts that after reading the tensor again.
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import native
from protocol.errors import ExpertmeshError, ModelError
from protocol.gguf_writer import MAGIC
from protocol.model import Model
from protocol.pack import DIGEST_BYTES
from protocol.pack_plan import HEADER, PackPlan, Piece, PlannedTensor
from protocol.wording import size
from protocol.write_all import write_all

UNFINISHED = b"part"
"""What an unfinished file begins with, in place of MAGIC."""

assert len(UNFINISHED) == len(MAGIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What has been done since the last one."""

    bytes: int
    again: bool
    """It was there already, from an earlier run, and was found sound."""


def partial_path(out: Path) -> Path:
    """Where an unfinished pack lies."""
    return out.with_name(f"{out.name}.partial")


def write_pack(model: Model, plan: PackPlan, out: Path) -> Iterator[Progress]:
    """Make the pack `out`, or go on where an earlier run ended; take all items, and it is there.

    ModelError if the model changes meanwhile; ExpertmeshError if there is something at `out`, not enough room, an
    unfinished file of another pack, or somebody else at work on it. What was done is kept then.
    """
    if os.path.lexists(out):
        raise ExpertmeshError(f"{out} is there already; remove it, or name another file")
    partial = partial_path(out)
    try:
        with _opened(partial) as file:
            yield from _Writer(model, plan, out, file).run()
            partial.rename(out)  # before anybody else may begin with it
        _sync_folder(out.parent)
    except OSError as error:
        raise ExpertmeshError(f"{partial} cannot be written: {error.strerror or error}") from None


@contextmanager
def _opened(partial: Path) -> Iterator[int]:
    """A descriptor of the unfinished file, which nobody else has then."""
    file = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(file), os.lstat(partial))
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:  # somebody has it, or had it when it was opened here and has given it its name since
            raise ExpertmeshError(f"{partial} is being written by another process")
        yield file
    finally:
        os.close(file)


class _Writer:
    """One run on one file."""

    def __init__(self, model: Model, plan: PackPlan, out: Path, file: int) -> None:
        self._model = model
        self._plan = plan
        self._out = out
        self._file = file
        self._header = bytearray(plan.header)

    def run(self) -> Iterator[Progress]:
        self._begin()
        with ThreadPoolExecutor(1) as helper:
            for tensor in self._plan.tensors:
                place = self._plan.digest_of(tensor.number)
                stated = bytes(self._header[place])
                if any(stated) and stated == self._found(tensor):
                    yield Progress(bytes=tensor.bytes, again=True)
                    continue
                state = sha256()
                for piece, data in _packed_pieces(tensor, helper):
                    state.update(data.data)
                    write_all(self._file, data.data, tensor.offset + piece.start)
                    yield Progress(bytes=piece.bytes, again=False)
                if change := self._model.files.changed():
                    raise ModelError(change)
                self._note(place, state.digest())
        self._finish()

    def _begin(self) -> None:
        """Take over what an earlier run has noted, or begin."""
        partial, plan = partial_path(self._out), self._plan
        found = os.pread(self._file, len(plan.header), 0)
        magic = found[: len(MAGIC)]
        if not magic.strip(b"\0"):  # nothing has been finished
            self._check_room()
            write_all(self._file, memoryview(plan.header)[len(MAGIC) :], len(MAGIC))
            write_all(self._file, UNFINISHED, 0)
            return
        if magic not in (UNFINISHED, MAGIC):
            raise ExpertmeshError(f"{partial} is no unfinished pack; remove it, or name another file")
        if _without(found, plan.digests) != _without(plan.header, plan.digests):
            found_of = "was begun from another model, as another share, or by another version"
            raise ExpertmeshError(f"{partial} {found_of}; remove it to begin anew")
        self._check_room()
        self._header[plan.digests] = found[plan.digests]
        write_all(self._file, UNFINISHED, 0)

    def _check_room(self) -> None:
        state = os.fstatvfs(self._file)
        needed = self._plan.bytes - os.fstat(self._file).st_blocks * 512
        free = state.f_bavail * state.f_frsize
        if free < needed:
            raise ExpertmeshError(
                f"{self._out} would take {size(self._plan.bytes)}: {size(needed)} more are needed in its folder, "
                f"{size(free)} are free"
            )

    def _found(self, tensor: PlannedTensor) -> bytes:
        """The digest of what the file has of a tensor."""
        state = sha256()
        for piece in tensor.pieces():
            state.update(os.pread(self._file, piece.bytes, tensor.offset + piece.start))
        return state.digest()

    def _note(self, place: slice, digest: bytes) -> None:
        self._header[place] = digest
        write_all(self._file, digest, place.start)

    def _finish(self) -> None:
        """The header's own digest, and then the file is a pack."""
        own = self._plan.digest_of(HEADER)
        self._header[own] = bytes(DIGEST_BYTES)
        os.ftruncate(self._file, self._plan.size)
        self._note(own, sha256(self._header).digest())
        os.fsync(self._file)
        write_all(self._file, MAGIC, 0)
        os.fsync(self._file)


def _packed_pieces(tensor: PlannedTensor, helper: Executor) -> Iterator[tuple[Piece, NDArray[np.uint8]]]:
    """What the pack has of a tensor; the next piece is read and packed while this one is used."""
    coming: deque[tuple[Piece, Future[NDArray[np.uint8]]]] = deque()
    for piece in tensor.pieces():
        coming.append((piece, helper.submit(_packed_piece, tensor, piece)))
        if len(coming) > 1:
            ready, packed = coming.popleft()
            yield ready, packed.result()
    for ready, packed in coming:
        yield ready, packed.result()


def _packed_piece(tensor: PlannedTensor, piece: Piece) -> NDArray[np.uint8]:
    """What the pack has of a piece. ModelError if the model's file shrank."""
    info = tensor.source
    data = np.frombuffer(info.file.read(info.offset + piece.start, piece.bytes), np.uint8)
    if not tensor.packed or info.packed:
        return data
    packed = np.empty_like(data)
    native.pack_rows(int(info.type), piece.rows, info.shape[0], data, packed)
    return packed


def _without(header: bytes, digests: slice) -> bytes:
    """A header but for the first bytes and the digests."""
    return header[len(MAGIC) : digests.start] + header[digests.stop :]


def _sync_folder(folder: Path) -> None:
    """The new name is to be there after a power failure too."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
