"""The step: a window of rows of several sequences through the whole model.

Reading a prompt and continuing a conversation are the same step; a chunk of a prompt is more rows of one sequence.
The engine gives the dense half of each layer to a `DenseHalf`, and its experts to an `ExpertRunner`. A window may go
through the layers in two parts, one behind the other: then the dense half of one is computed while the experts of the
other are (`halves.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import numpy as np

import native
from coordinator.dense_half import DenseHalf, DenseStep, Rows
from coordinator.halves import halves_of
from coordinator.profile_recorder import Recorder, Routed
from coordinator.sequence import TokenSequence
from coordinator.sums import LayerSums
from coordinator.window import Chunk, Window, check_prompt, side_by_side
from native import cuda
from protocol.errors import ChangedExpertError, RequestError
from protocol.holder.watched_files import WatchedFiles
from protocol.layout import dense_tensors
from protocol.messages import F32, I32
from protocol.model import Model

__all__ = ["Chunk", "Engine", "ExpertRunner", "RowError", "TokenSequence"]


class ExpertRunner(Protocol):
    """Whoever computes the experts: this process, or workers.

    A layer is begun and then finished; two may be under way, under different step numbers. RequestError or ExpertError
    if an id is bad or the work cannot be done: the step fails.
    """

    @property
    def halves_from(self) -> int | None:
        """Rows from which on a window is better computed in two halves; None if whole, however many."""

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        """Begin to add every (row, expert) entry to `sums` exactly once, times its weight, on the fixed-point grid.

        `ids` and `weights` are (rows, k), and to be checked before anybody is asked; `sums` arrives zeroed, and
        either of its arrays may be added to.
        """

    def finish_layer(self, step: int) -> None:
        """Return when that is done."""

    def abandon(self) -> None:
        """Give up whatever was begun and not finished."""


class RowError(RequestError):
    """A row's values are not finite: its sequence is to blame, the others of the window are not."""

    def __init__(self, text: str, sequence: TokenSequence) -> None:
        super().__init__(text)
        self.sequence = sequence


class Engine:
    """One model's steps. Used by one thread.

    A step that raises has advanced no sequence: the same chunks, or some of them, can be tried again.
    """

    def __init__(self, model: Model, experts: ExpertRunner, dense: DenseHalf, recorder: Recorder | None = None) -> None:
        """`model`, of which `experts` and `dense` are the halves, stays open for as long as the engine.

        `recorder` is told which experts the rows of each step use.
        """
        self._geometry = model.geometry
        self._layout = model.layout
        self._experts = experts
        self._dense = dense
        self._recorder = recorder
        self._routed: list[Routed] = []  # of the step under way, if there is a recorder
        # Files of experts alone are watched by who computes these: workers may have copies that are whole.
        files = (model.files.tensor(tensor.name).file for tensor in dense_tensors(model.geometry))
        self._watched = WatchedFiles(dict.fromkeys(files))
        self.steps = 0
        """Numbers of steps given so far: the next one. Halves of a window are steps of their own for whoever computes
        experts, so that every answer tells which half it is for."""

    def close(self) -> None:
        """No longer survive changes of the files. May be called again."""
        self._watched.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def new_sequence(self, prompt_ids: Sequence[int] | I32, max_tokens: int) -> TokenSequence:
        """An empty sequence with room for this prompt and its answer.

        RequestError if the model has no such ids, or the device has no room for their keys and values.
        """
        check_prompt(prompt_ids, max_tokens, self._geometry)
        return TokenSequence(self._dense.new_cache(len(prompt_ids) + max_tokens), last_step=self.steps - 1)

    def step(self, chunks: Sequence[Chunk], between_layers: Callable[[], None] = lambda: None) -> list[F32]:
        """Compute the chunks; their logits, each (rows wanted, vocabulary). The sequences advance by their known ids.

        `between_layers` is called before each layer, for a step can take long; what it raises ends the step.
        RequestError for ids outside the vocabulary, a full sequence, values that are not finite (RowError), a device
        without memory left and a model file that changed; and whatever the `ExpertRunner` raises.
        """
        window = Window.of(chunks, self._geometry.vocabulary)
        try:
            logits = self._compute(window, between_layers)
        except ChangedExpertError:
            raise
        except cuda.DeviceError as error:  # no memory is left there for what a step needs
            raise RequestError(str(error)) from error
        except Exception:
            self._check_files()  # explains whatever went wrong better than its consequence does
            raise
        self._check_files()
        if self._recorder is not None:
            self._recorder.take(self._routed, window.rows)
        for chunk in window.chunks:
            chunk.sequence.advance(chunk.known, self.steps - 1)
        return np.split(logits, np.cumsum([len(chunk.wanted()) for chunk in window.chunks[:-1]], dtype=np.intp))

    def _compute(self, window: Window, between_layers: Callable[[], None]) -> F32:
        parts = self._begin(window)
        self._routed.clear()  # of a step that failed
        try:
            for layer in range(len(self._layout.layers)):
                for part in parts:
                    self._finish(part)
                    if part is parts[0]:
                        between_layers()
                    try:
                        self._enter(part, layer)
                    except native.NonFiniteError as error:
                        raise _row_error(f"layer {layer}", window, part.rows, error) from error
            for part in parts:
                self._finish(part)
        finally:
            self._experts.abandon()
        wanted = window.wanted_rows()
        try:
            return self._dense.logits(wanted)
        except native.NonFiniteError as error:
            raise _row_error("the head", window, wanted, error) from error

    def _begin(self, window: Window) -> list[_Part]:
        """The parts of a window that go through the layers side by side."""
        halves = halves_of(window, self._experts.halves_from)
        numbers = range(self.steps, self.steps + len(halves))
        self.steps = numbers.stop
        begun = zip(numbers, self._dense.begin(halves), side_by_side(halves), strict=True)
        return [_Part(number=number, step=step, rows=range(*place)) for number, step, place in begun]

    def _enter(self, part: _Part, layer: int) -> None:
        """All of a layer that is computed here, and its experts begun."""
        step, experts = part.step, self._layout.layers[layer]
        step.attend(layer)
        if experts is None:
            step.feed_forward(layer)
            return
        rows, ids, weights = step.route(layer, experts.quantised_input)
        part.experts_under_way = True
        self._experts.begin_layer(part.number, layer, rows, ids, weights, step.sums)
        if self._recorder is not None:  # after others have been asked
            self._routed.append((layer, ids))

    def _finish(self, part: _Part) -> None:
        """The layer that a part has entered last is done, if it has."""
        if part.experts_under_way:
            self._experts.finish_layer(part.number)
            part.step.combine()
            part.experts_under_way = False

    def _check_files(self) -> None:
        """RequestError if a file with dense weights is not what it was: they may have been read as zeros."""
        if problem := self._watched.problem():
            raise RequestError(f"{problem}; start again with it whole")


@dataclass(slots=True, kw_only=True, eq=False)
class _Part:
    """A window, or one half of it, on its way through the layers."""

    number: int
    """Of its step, as `ExpertRunner` has it."""
    step: DenseStep
    rows: range
    """Of the window."""
    experts_under_way: bool = False


def _row_error(where: str, window: Window, rows: Sequence[int], error: native.NonFiniteError) -> RowError:
    """The error, which counts along `rows`, as one that tells whose row it is."""
    reason, index = error.args
    row = rows[index]
    sequence, position = window.chunks[window.row_chunk[row]].sequence, window.row_position[row]
    return RowError(f"{where}, row {row} of the window (position {position}): {reason}", sequence)
