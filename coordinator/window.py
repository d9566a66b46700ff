"""What one step computes: rows of several sequences, chunk after chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from coordinator.sequence import TokenSequence
from protocol.errors import RequestError
from protocol.messages import I32, MAX_ROWS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """Ids that continue one sequence, and for which of them logits are wanted."""

    sequence: TokenSequence
    ids: Sequence[int] | I32
    logits: Literal["none", "last", "all"] = "last"

    def wanted(self) -> range:
        """Which rows of the chunk get logits."""
        rows = len(self.ids)
        return range({"none": rows, "last": rows - 1, "all": 0}[self.logits], rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """The rows of one step. No row's bits depend on what else is in the window."""

    chunks: tuple[Chunk, ...]
    bounds: tuple[int, ...]
    """Chunk i has the rows from bounds[i] up to, not including, bounds[i + 1]."""
    ids: I32  # (rows,)
    row_chunk: I32  # (rows,): which chunk a row belongs to
    row_position: I32  # (rows,): where it stands in its sequence

    @classmethod
    def of(cls, chunks: Sequence[Chunk], vocabulary: int) -> Window:
        """RequestError for ids outside the vocabulary or a full cache; ValueError for what no scheduler may ask."""
        lengths = [len(chunk.ids) for chunk in chunks]
        if not 1 <= sum(lengths) <= MAX_ROWS or 0 in lengths:
            raise ValueError(f"a window of 1 to {MAX_ROWS} rows without empty chunks expected, found {lengths}")
        if len({id(chunk.sequence) for chunk in chunks}) < len(chunks):
            raise ValueError("a sequence can have one chunk of a window only")
        for chunk in chunks:
            check_ids(chunk.ids, vocabulary)
            _check_room(chunk)
        bounds = np.cumsum([0, *lengths])
        row_chunk = np.repeat(np.arange(len(chunks)), lengths)
        to_position = np.array([chunk.sequence.position for chunk in chunks]) - bounds[:-1]
        return cls(
            chunks=tuple(chunks),
            bounds=tuple(bounds.tolist()),
            ids=np.concatenate([np.asarray(chunk.ids, np.int32) for chunk in chunks]),
            row_chunk=row_chunk.astype(np.int32),
            row_position=(np.arange(bounds[-1]) + to_position[row_chunk]).astype(np.int32),
        )

    @property
    def rows(self) -> int:
        """How many rows the chunks have together."""
        return self.bounds[-1]

    def parts(self) -> Iterator[tuple[Chunk, slice]]:
        """Each chunk with its rows."""
        for chunk, (first, end) in zip(self.chunks, pairwise(self.bounds), strict=True):
            yield chunk, slice(first, end)

    def wanted_rows(self) -> list[int]:
        """The rows that get logits, ascending."""
        return [part.start + row for chunk, part in self.parts() for row in chunk.wanted()]


def check_context(prompt_tokens: int, max_tokens: int, context: int) -> None:
    """RequestError if a prompt and its answer have no room in the model's context."""
    positions = prompt_tokens + max_tokens
    if positions > context:
        raise RequestError(
            f"{prompt_tokens} prompt tokens and {max_tokens} new ones need {positions} positions, "
            f"the model's context has {context}"
        )


def check_ids(ids: Sequence[int] | I32, vocabulary: int) -> None:
    """RequestError that names the first id outside the vocabulary."""
    for index, token in enumerate(ids):
        if not 0 <= token < vocabulary:
            raise RequestError(
                f"token id {token} at index {index} is not in the vocabulary: expected 0..{vocabulary - 1}"
            )


def _check_room(chunk: Chunk) -> None:
    sequence, rows = chunk.sequence, len(chunk.ids)
    if rows > sequence.room:
        raise RequestError(
            f"{rows} tokens do not fit behind the {sequence.position} of their sequence: "
            f"it was opened for {sequence.cache.capacity}"
        )
