"""The step: a window of rows of several sequences through the whole model.

Reading a prompt and continuing a conversation are the same step; a chunk of a prompt is more rows of one sequence.
The engine gives the dense half of each layer to a `DenseHalf`, and its experts to an `ExpertRunner`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self

import numpy as np

import native
from coordinator.dense_half import DenseHalf, Rows
from coordinator.sequence import TokenSequence
from coordinator.sums import LayerSums
from coordinator.window import Chunk, Window, check_prompt
from native import cuda
from protocol.errors import ChangedExpertError, RequestError
from protocol.holder.watched_files import WatchedFiles
from protocol.layout import dense_tensors
from protocol.messages import F32, I32
from protocol.model import Model

__all__ = ["Chunk", "Engine", "ExpertRunner", "RowError", "TokenSequence"]


class ExpertRunner(Protocol):
    """Whoever computes the experts: this process, or workers."""

    def run_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        """Add every (row, expert) entry to `sums` exactly once, times its weight, on the fixed-point grid.

        `ids` and `weights` are (rows, k), and to be checked before anybody is asked; `sums` arrives zeroed, and
        either of its arrays may be added to. RequestError or ExpertError if an id is bad or the work cannot be done:
        the step fails.
        """


class RowError(RequestError):
    """A row's values are not finite: its sequence is to blame, the others of the window are not."""

    def __init__(self, text: str, sequence: TokenSequence) -> None:
        super().__init__(text)
        self.sequence = sequence


class Engine:
    """One model's steps. Used by one thread.

    A step that raises has advanced no sequence: the same chunks, or some of them, can be tried again.
    """

    def __init__(self, model: Model, experts: ExpertRunner, dense: DenseHalf) -> None:
        """`model`, of which `experts` and `dense` are the halves, stays open for as long as the engine."""
        self._geometry = model.geometry
        self._layout = model.layout
        self._experts = experts
        self._dense = dense
        # Files of experts alone are watched by who computes these: workers may have copies that are whole.
        files = (model.files.tensor(tensor.name).file for tensor in dense_tensors(model.geometry))
        self._watched = WatchedFiles(dict.fromkeys(files))
        self.steps = 0
        """Steps begun so far: the number of the next one."""

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
        number, self.steps = self.steps, self.steps + 1
        try:
            logits = self._compute(number, window, between_layers)
        except ChangedExpertError:
            raise
        except cuda.DeviceError as error:  # no memory is left there for what a step needs
            raise RequestError(str(error)) from error
        except Exception:
            self._check_files()  # explains whatever went wrong better than its consequence does
            raise
        self._check_files()
        for chunk in window.chunks:
            chunk.sequence.advance(chunk.known, number)
        return np.split(logits, np.cumsum([len(chunk.wanted()) for chunk in window.chunks[:-1]], dtype=np.intp))

    def _compute(self, number: int, window: Window, between_layers: Callable[[], None]) -> F32:
        step = self._dense.begin(window)
        for layer, experts in enumerate(self._layout.layers):
            between_layers()
            with _rows_named(f"layer {layer}", window, range(window.rows)):
                step.attend(layer)
                if experts is None:
                    step.feed_forward(layer)
                    continue
                rows, ids, weights = step.route(layer, experts.quantised_input)
            self._experts.run_layer(number, layer, rows, ids, weights, step.sums)
            step.combine()
        wanted = window.wanted_rows()
        with _rows_named("the head", window, wanted):
            return step.logits(wanted)

    def _check_files(self) -> None:
        """RequestError if a file with dense weights is not what it was: they may have been read as zeros."""
        if problem := self._watched.problem():
            raise RequestError(f"{problem}; start again with it whole")


@contextmanager
def _rows_named(where: str, window: Window, rows: Sequence[int]) -> Iterator[None]:
    """Turn NonFiniteError, which counts along `rows`, into RowError, which tells whose row it is."""
    try:
        yield
    except native.NonFiniteError as error:
        reason, index = error.args
        row = rows[index]
        sequence, position = window.chunks[window.row_chunk[row]].sequence, window.row_position[row]
        raise RowError(f"{where}, row {row} of the window (position {position}): {reason}", sequence) from error
