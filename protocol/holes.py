"""Weights that were never written and read as zeros: what an interrupted download or copy leaves in a file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from protocol.errors import ModelError
from protocol.geometry import EMBEDDING, HEAD, Geometry
from protocol.gguf import GgufFile, TensorInfo
from protocol.gguf_header import shorten
from protocol.layout import layer_of_experts
from protocol.messages import I64, U8
from protocol.pack import EXPERTS_KEY, Pack
from protocol.shards import ModelFiles


def check_holes(files: ModelFiles) -> None:
    """ModelError for the first tensor with a hole."""
    for problem in hole_problems(files):
        raise ModelError(problem)


def hole_problems(files: ModelFiles) -> Iterator[str]:
    """A sentence for each tensor with holes where something must be.

    Real weights have no page of zeros, save the embedding and the head, whose rows of tokens that do not exist may be
    zeros and were perhaps left out by a careful copy: of these two, half must have been written. In a share, what is
    no part of it is a hole.
    """
    for file in files.files:
        holes = np.array(list(file.file.holes()), np.int64).reshape(-1, 2)
        if len(holes) and file.tensors:
            yield from _problems(file, holes)


def _problems(file: GgufFile, holes: I64) -> Iterator[str]:
    tensors = list(file.tensors.values())
    parts = [parts_there(tensor, file.pack) for tensor in tensors]
    starts, ends = np.concatenate(parts).T
    missing = _bytes_below(holes, ends) - _bytes_below(holes, starts)
    last = 0
    for tensor, count in zip(tensors, map(len, parts), strict=True):
        first, last = last, last + count
        lost = int(missing[first:last].sum())
        if lost > (tensor.bytes // 2 if tensor.name in (EMBEDDING, HEAD) else 0):
            start = starts[first + np.flatnonzero(missing[first:last])[0]]
            at = max(start, holes[np.searchsorted(holes[:, 1], start, "right"), 0])
            yield (
                f"{file.path}: {lost} bytes of tensor {shorten(tensor.name)} were never written (holes in the "
                f"file, the first at {at}): was its download or copy interrupted?"
            )


def experts_there(files: ModelFiles, geometry: Geometry) -> U8 | None:
    """(layers, experts): 1 for those of a share that are there; None if all are. ModelError for another shape."""
    pack = files.pack
    if pack is None or pack.experts is None:
        return None
    shape = geometry.layers, geometry.experts
    if len(pack.experts) != shape[0] * shape[1]:
        found = f"{len(pack.experts)} experts, expected {shape[0] * shape[1]}"
        raise ModelError(f"{files.path}: {EXPERTS_KEY!r} speaks of {found}")
    there: U8 = pack.experts.reshape(shape).astype(np.uint8)
    return there


def parts_there(tensor: TensorInfo, pack: Pack | None) -> I64:
    """Start and end in the file (parts, 2) of what is there of a tensor: all, or of a share the experts it has."""
    experts = those_there(tensor, pack)
    if experts is None:
        return np.array([[tensor.offset, tensor.offset + tensor.bytes]], np.int64)
    expert_bytes = tensor.bytes // tensor.shape[-1]
    starts = tensor.offset + np.array(experts, np.int64) * expert_bytes
    return np.stack([starts, starts + expert_bytes], axis=1)


def those_there(tensor: TensorInfo, pack: Pack | None) -> tuple[int, ...] | None:
    """The experts that a file has of one of its tensors; None if it has the whole tensor. A share has experts alone."""
    if pack is None or pack.experts is None:
        return None
    layer = layer_of_experts(tensor.name)
    return () if layer is None else tuple(np.flatnonzero(pack.held(layer, tensor.shape[-1])).tolist())


def _bytes_below(holes: I64, position: I64) -> I64:
    """How many bytes of `holes` (n, 2), which ascend, lie below each of these positions."""
    before = np.searchsorted(holes[:, 0], position)
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(holes[:, 1] - holes[:, 0])])
    beyond = np.maximum(0, np.concatenate([np.zeros(1, np.int64), holes[:, 1]])[before] - position)
    return total[before] - beyond
