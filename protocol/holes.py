"""Weights that were never written and read as zeros: what an interrupted download or copy leaves in a file."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.errors import ModelError
from protocol.geometry import EMBEDDING, HEAD
from protocol.gguf_header import shorten
from protocol.shards import ModelFiles


def check_holes(files: ModelFiles) -> None:
    """ModelError for the first tensor with a hole."""
    for problem in hole_problems(files):
        raise ModelError(problem)


def hole_problems(files: ModelFiles) -> Iterator[str]:
    """A sentence for each tensor with holes.

    Real weights have no page of zeros, save the embedding and the head, whose rows of tokens that do not exist may be
    zeros and were perhaps left out by a careful copy: of these two, half must have been written.
    """
    for file in files.files:
        holes = list(file.file.holes())
        for tensor in file.tensors.values() if holes else ():
            end = tensor.offset + tensor.bytes
            parts = [(max(start, tensor.offset), min(stop, end)) for start, stop in holes]
            missing = [part for part in parts if part[0] < part[1]]
            count = sum(stop - start for start, stop in missing)
            if count > (tensor.bytes // 2 if tensor.name in (EMBEDDING, HEAD) else 0):
                yield (
                    f"{file.path}: {count} bytes of tensor {shorten(tensor.name)} were never written (holes in the "
                    f"file, the first at {missing[0][0]}): was its download or copy interrupted?"
                )
