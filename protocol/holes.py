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
    """A sentence for each tensor and hole.

    Real weights have no page of zeros, save the embedding and the head, whose rows of tokens that do not exist may be
    zeros and were perhaps left out by a careful copy: of these two, half must have been written.
    """
    for file in files.files:
        for start, end in file.file.holes():
            for tensor in file.tensors.values():
                first, last = max(start, tensor.offset), min(end, tensor.offset + tensor.bytes)
                least = tensor.bytes // 2 if tensor.name in (EMBEDDING, HEAD) else 1
                if last - first >= least:
                    yield (
                        f"{file.path}: {last - first} bytes at {first} were never written (a hole in the file), part "
                        f"of tensor {shorten(tensor.name)}: was its download or copy interrupted?"
                    )
