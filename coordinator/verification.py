"""Model files checked against themselves, and packs against the model that they were made of; every tensor is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import native
from coordinator.inspection import inspect
from protocol.errors import ModelError
from protocol.gguf import GgufFile, TensorInfo
from protocol.gguf_header import shorten
from protocol.holes import those_there
from protocol.layout import layer_of_experts
from protocol.model import Model
from protocol.pack import DIGEST_BYTES, DIGESTS_KEY, Pack
from protocol.pack_plan import Piece, PlannedTensor, kept_entries
from protocol.shards import ModelFiles

Advance = Callable[[int], None]
"""Told of bytes that have been read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found of one model, pack or share."""

    path: Path
    kind: str
    """"model", "pack", "share N of M"; "" if it cannot be opened."""
    digests: int
    """Tensors whose digests were compared; a model that is no pack has none."""
    compared: int
    """Tensors that were compared with another model's."""
    problems: tuple[str, ...]


def bytes_to_read(path: Path, against: Model | None) -> int:
    """About how much `verify` reads: for who shows progress. 0 if the file cannot be opened."""
    try:
        with ModelFiles.open(path) as files:
            times = (files.pack is not None) + (against is not None)
            return times * sum(tensor.bytes for tensor in _planned(files))
    except ModelError:
        return 0


def verify(path: Path, against: Model | None, advance: Advance) -> Verdict:
    """Check structure, holes and digests, and compare with `against` if there is one. Everything wrong is a problem."""
    try:
        with ModelFiles.open(path) as files:
            return _verify(path, files, against, advance)
    except ModelError as error:
        return Verdict(path=path, kind="", digests=0, compared=0, problems=(str(error),))


def _verify(path: Path, files: ModelFiles, against: Model | None, advance: Advance) -> Verdict:
    problems = list(inspect(files).problems)
    pack, tensors = files.pack, _planned(files)
    if pack is not None:
        problems += _wrong_digests(files, pack, tensors, advance)
    if against is not None:
        problems += _differences(files, tensors, against, advance)
    if change := files.changed():
        problems.append(change)
    return Verdict(
        path=path,
        kind="model" if pack is None else "pack" if pack.share is None else str(pack.share),
        digests=0 if pack is None else len(tensors),
        compared=0 if against is None else len(tensors),
        problems=tuple(problem.removeprefix(f"{files.path}: ") for problem in problems),
    )


def _planned(files: ModelFiles) -> tuple[PlannedTensor, ...]:
    """The tensors of which something is there, as if each were to be packed."""
    tensors = (
        PlannedTensor(
            source=tensor,
            number=number,
            offset=tensor.offset,
            packed=tensor.packed,
            experts=those_there(tensor, files.pack),
        )
        for number, tensor in enumerate(files.tensors.values())
    )
    return tuple(tensor for tensor in tensors if tensor.bytes)


# --- a pack against itself ------------------------------------------------------------------------------------------


def _wrong_digests(
    files: ModelFiles, pack: Pack, tensors: tuple[PlannedTensor, ...], advance: Advance
) -> Iterator[str]:
    if _header_digest(files.files[0]) != pack.digests[0].tobytes():
        yield "the header is not what was written: it differs from its digest"
    for tensor in tensors:
        state = sha256()
        for piece in tensor.pieces():
            state.update(_read(tensor.source, piece))
            advance(piece.bytes)
        if state.digest() != pack.digests[1 + tensor.number].tobytes():
            name, end = shorten(tensor.source.name), tensor.offset + tensor.source.bytes
            yield f"tensor {name}, bytes {tensor.offset} to {end}, is not what was written: it differs from its digest"


def _header_digest(file: GgufFile) -> bytes:
    """Taken with zeros in its own place."""
    end = min((tensor.offset for tensor in file.tensors.values()), default=file.file.size)
    header = bytearray(file.file.read(0, end))
    digests_end = file.header.entries[DIGESTS_KEY][1]
    own = digests_end - (1 + len(file.tensors)) * DIGEST_BYTES
    header[own : own + DIGEST_BYTES] = bytes(DIGEST_BYTES)
    return sha256(header).digest()


# --- against another ------------------------------------------------------------------------------------------------


def _differences(
    files: ModelFiles, tensors: tuple[PlannedTensor, ...], against: Model, advance: Advance
) -> Iterator[str]:
    other = against.files
    if files.pack is not None and files.pack.fingerprint != against.fingerprint:
        yield (
            f"it was made of a model with fingerprint {files.pack.fingerprint}, and that of {other.path} is "
            f"{against.fingerprint}: they differ in weights, or in the names of their files"
        )
    if kept_entries(files) != kept_entries(other):
        yield f"its metadata is not that of {other.path}"
    if left_over := sorted(files.tensors.keys() ^ other.tensors.keys()):
        yield f"tensor {shorten(left_over[0])} is in one of both alone; such tensors found: {len(left_over)}"
    for tensor in tensors:
        if tensor.source.name in other.tensors:
            yield from _difference(tensor, other.tensors[tensor.source.name], other.path, advance)


def _difference(tensor: PlannedTensor, other: TensorInfo, path: Path, advance: Advance) -> Iterator[str]:
    """A sentence if the weights differ; the rest of the tensor is not read then."""
    mine = tensor.source
    if (mine.type, mine.shape) != (other.type, other.shape):
        found, expected = (f"{each.type.name} {each.shape}" for each in (mine, other))
        yield f"tensor {shorten(mine.name)} is {found}, and in {path} {expected}"
        return
    for piece in tensor.pieces():
        if not np.array_equal(_rows(mine, piece), _rows(other, piece)):
            expert = piece.start // (mine.bytes // tensor.matrices)
            which = f" of expert {expert}" if layer_of_experts(mine.name) is not None else ""
            yield f"tensor {shorten(mine.name)} has other weights{which} than {path}"
            return
        advance(piece.bytes)


def _rows(tensor: TensorInfo, piece: Piece) -> NDArray[np.uint8]:
    """A piece as it lies in a GGUF file."""
    data = np.frombuffer(_read(tensor, piece), np.uint8)
    if not tensor.packed:
        return data
    rows = np.empty_like(data)
    native.unpack_rows(int(tensor.type), piece.rows, tensor.shape[0], data, rows)
    return rows


def _read(tensor: TensorInfo, piece: Piece) -> bytes:
    return tensor.file.read(tensor.offset + piece.start, piece.bytes)
