"""What one step computes: rows of several sequences, chunk after chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np

from coordinator.sequence import TokenSequence
from protocol.errors import RequestError
from protocol.geometry import Geometry
from protocol.messages import I32, MAX_ROWS
from protocol.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """Ids that continue one sequence, and for which of them logits are wanted."""

    sequence: TokenSequence
    ids: Sequence[int] | I32
    logits: Literal["none", "last", "all"] = "last"
    drafts: int = 0
    """So many of the last ids are guesses. They get logits as the last known id does; the sequence does not advance by
    them until somebody finds them right (TokenSequence.keep)."""

    @property
    def known(self) -> Sequence[int] | I32:
        """The ids that are no guesses."""
        return self.ids[: len(self.ids) - self.drafts]

    def wanted(self) -> range:
        """Which rows of the chunk get logits."""
        rows = len(self.ids)
        return range({"none": rows, "last": rows - 1 - self.drafts, "all": 0}[self.logits], rows)


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
        if not 1 <= sum(lengths) <= MAX_ROWS or not all(len(chunk.known) for chunk in chunks):
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

    def between(self, first: int, end: int) -> Window:
        """The rows from `first` up to, not including, `end`, as a window of their own.

        A chunk may be cut in two. What is left of it continues its sequence where its rows say, not where the sequence
        ends, and which of its rows get logits is for the whole window to say.
        """
        parts = [(chunk, max(part.start, first), min(part.stop, end), part.start) for chunk, part in self.parts()]
        inside = [part for part in parts if part[1] < part[2]]
        return Window(
            chunks=tuple(
                replace(chunk, ids=chunk.ids[at - start : to - start], drafts=0) for chunk, at, to, start in inside
            ),
            bounds=(0, *(to - first for _, _, to, _ in inside)),
            ids=self.ids[first:end],
            row_chunk=self.row_chunk[first:end] - self.row_chunk[first],
            row_position=self.row_position[first:end],
        )

    def wanted_rows(self) -> list[int]:
        """The rows that get logits, ascending."""
        return [part.start + row for chunk, part in self.parts() for row in chunk.wanted()]


def side_by_side(windows: Sequence[Window]) -> list[tuple[int, int]]:
    """Where the rows of windows that are computed together lie in one memory: from, and up to, each."""
    return list(pairwise(accumulate((window.rows for window in windows), initial=0)))


def check_prompt(ids: Sequence[int] | I32, max_tokens: int, geometry: Geometry) -> None:
    """RequestError if it is empty, does not fit the model's context with its answer, or has ids the model has not."""
    if len(ids) == 0:
        raise RequestError("the prompt is empty: one token at least is expected")
    if max_tokens < 0:
        raise RequestError(f"max_tokens is {max_tokens}, expected 0 or more")
    if (positions := len(ids) + max_tokens) > geometry.context:
        raise RequestError(
            f"{counted(len(ids), 'prompt token')} and {counted(max_tokens, 'new one')} need {positions} positions, "
            f"the model's context has {geometry.context}"
        )
    check_ids(ids, geometry.vocabulary)


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
            f"{counted(rows, 'token')} do not fit behind the {sequence.position} of their sequence: "
            f"it was opened for {sequence.cache.capacity}"
        )
