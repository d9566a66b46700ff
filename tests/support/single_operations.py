"""The dense half of a layer as the single operations that `coordinator.dense` has native code do in a few calls.

What these calls must equal to the bit, and where a profile can put timers between the operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import native
from coordinator.activations import Activations
from coordinator.dense import DenseModel, Step
from coordinator.weights import LayerWeights
from coordinator.window import Window
from protocol.messages import F32, I32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SingleOperations:
    """One step's rows: those of `native.StepBuffers`."""

    pool: native.Pool
    eps: float
    buffers: Activations[NDArray[Any]]
    cos: F32
    sin: F32
    caches: Sequence[native.KvCache]
    row_cache: I32
    row_position: I32

    def attend(self, layer: int, weights: LayerWeights[native.Weights, F32]) -> None:
        """As native.AttentionHalf."""
        buffers = self.buffers
        native.rms_norm(buffers.x, weights.attention_norm, self.eps, buffers.normed, self.pool)
        rows = native.Rows(buffers.normed)  # quantised once, for three matrices
        self._multiply(weights.query, rows, buffers.query)
        self._multiply(weights.key, rows, buffers.key)
        self._multiply(weights.value, rows, buffers.value)
        for heads, norm in ((buffers.query, weights.query_norm), (buffers.key, weights.key_norm)):
            native.rms_norm(heads, norm, self.eps, heads, self.pool)
            native.rope(heads, self.cos, self.sin, self.pool)
        for index in np.unique(self.row_cache):
            part = np.flatnonzero(self.row_cache == index)
            rows_of = slice(part[0], part[-1] + 1)
            position = int(self.row_position[part[0]])
            self.caches[index].store(layer, position, buffers.key[rows_of], buffers.value[rows_of])
        native.attention(
            self.pool, layer, buffers.query, self.caches, self.row_cache, self.row_position, buffers.attended
        )
        self._multiply(weights.output, native.Rows(buffers.attended), buffers.normed)
        native.add_rows(buffers.x, buffers.normed, self.pool)

    def route(
        self, norm: F32, router: native.Weights, k: int, normalise: bool, scale: float, quantise: bool
    ) -> tuple[native.Rows, I32, F32]:
        """As native.ExpertRouter; the rows have their values in any case."""
        buffers = self.buffers
        native.rms_norm(buffers.x, norm, self.eps, buffers.normed, self.pool)
        rows = native.Rows(buffers.normed)
        self._multiply(router, rows, buffers.router)
        ids, shares = native.route(buffers.router, k, normalise, scale, self.pool)
        if quantise:
            rows.quantise(self.pool)
        return rows, ids, shares

    def _multiply(self, weights: native.Weights, rows: native.Rows, out: F32) -> None:
        native.matmul(self.pool, weights, 0, rows, out.reshape(rows.count, weights.rows))


class SingleStep(Step):
    """A window on the CPU by single operations."""

    def __init__(self, model: DenseModel, window: Window, buffers: Activations[NDArray[Any]]) -> None:
        super().__init__(model, window, buffers)
        turns = model.rotation
        cos, sin = native.rope_table(window.row_position, turns.frequencies, turns.magnitude)
        caches: Any = [chunk.sequence.cache for chunk in window.chunks]
        self._single = SingleOperations(
            pool=model.pool,
            eps=model.geometry.norm_eps,
            buffers=buffers,
            cos=cos,
            sin=sin,
            caches=caches,
            row_cache=window.row_chunk,
            row_position=window.row_position,
        )

    def attend(self, layer: int) -> None:
        self._single.attend(layer, self._model.weights.layers[layer])

    def route(self, layer: int, quantise: bool) -> tuple[native.Rows, I32, F32]:
        geometry, weights = self._model.geometry, self._model.weights
        choice = geometry.experts_used, geometry.normalise_weights, geometry.weight_scale
        return self._single.route(weights.layers[layer].ffn_norm, weights.routers[layer], *choice, quantise)
