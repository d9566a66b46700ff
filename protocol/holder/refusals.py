"""Why expert work cannot be done: the same checks in the same words, whoever holds the experts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import native
from protocol.errors import ExpertError
from protocol.layout import ExpertLayout, LayerExperts
from protocol.messages import F32, I8, I32, U8


def layer_of(layout: ExpertLayout, layer: int) -> LayerExperts:
    """A layer's experts; ExpertError if the model has no such layer, or no experts there."""
    if not 0 <= layer < len(layout.layers):
        raise ExpertError(layer, -1, f"the model has layers 0 to {len(layout.layers) - 1}")
    if (experts := layout.layers[layer]) is None:
        raise ExpertError(layer, -1, "a dense layer, which has no experts")
    return experts


def check_ids(layout: ExpertLayout, layer: int, experts: NDArray[np.integer[Any]]) -> None:
    """ExpertError unless the model has these experts, which ascend, in this layer."""
    layer_of(layout, layer)
    for expert in (int(experts[0]), int(experts[-1])) if len(experts) else ():
        if not 0 <= expert < layout.experts:
            raise ExpertError(layer, expert, f"the model has experts 0 to {layout.experts - 1}")


def check_there(there: U8 | None, layer: int, experts: NDArray[np.integer[Any]]) -> None:
    """ExpertError unless the weights of these experts are `there` (layers, experts), in a share; None: all are."""
    if there is not None and len(missing := experts[there[layer, experts] == 0]):
        raise ExpertError(layer, int(missing[0]), "it is not in this share of the model")


def rows_of(layout: ExpertLayout, layer: int, codes: I8, scales: F32, values: F32) -> native.Rows:
    """Activations for the kernels: from `codes` (n, width) and `scales` (n, width / 32), or `values` (n, width).

    ExpertError if that is not the form in which this layer's activations travel, or they are none.
    """
    quantised = layer_of(layout, layer).quantised_input
    given = codes if quantised else values
    if len(given) == 0:
        expected, found = ("int8", "fp32") if quantised else ("fp32", "int8")
        raise ExpertError(layer, -1, f"activations are {found}, {expected} expected in this layer")
    if given.shape[1] != layout.width:
        raise ExpertError(layer, -1, f"activations have {given.shape[1]} columns, {layout.width} expected")
    try:
        return native.Rows.quantised(codes, scales) if quantised else native.Rows(values)
    except ValueError as error:
        raise ExpertError(layer, -1, str(error)) from None


def in_words(layer: int, error: native.EntryRangeError | native.NonFiniteError, entry_expert: I32) -> ExpertError:
    """Names the expert that gave a number out of range; none for an activation row that is not finite.

    Nothing in the words depends on how entries are numbered here.
    """
    if isinstance(error, native.NonFiniteError):
        return ExpertError(layer, -1, str(error.args[0]))
    reason = "its output is not finite or reaches 2^22 in magnitude: are its weights damaged?"
    return ExpertError(layer, int(entry_expert[error.args[1]]), reason)
