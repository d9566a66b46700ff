"""The dense part of a qwen3moe step on the CPU: embedding, attention half and router of each layer, dense layers, head.

The experts, between `route` and `combine`, are somebody else's work. docs/arithmetic.md states every operation;
each row gives the bits that it would give alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import native
from coordinator.activations import Activations
from coordinator.kv import check_kv, no_room
from coordinator.rope import rotation
from coordinator.sequence import Cache
from coordinator.sums import LayerSums
from coordinator.weights import LayerWeights, mapped_weights
from coordinator.window import Window, side_by_side
from protocol.messages import F32, I32
from protocol.model import Model


class DenseModel:
    """The dense weights at work on the CPU (a `DenseHalf`). The buffers are shared by all steps: one at a time."""

    def __init__(self, model: Model, pool: native.Pool, max_rows: int, kv: str) -> None:
        """`kv` is one of KV_TYPES; no step has more than `max_rows` rows. `model` stays open.

        ModelError if it lacks a dense tensor, or one has another shape or a type that no kernel runs.
        """
        check_kv(kv)
        self.geometry = model.geometry
        self.pool = pool
        self.weights = mapped_weights(model)
        self.attention = [self._attention(layer) for layer in self.weights.layers]
        self.routers = {number: self._router(number, matrix) for number, matrix in self.weights.routers.items()}
        self.rotation = rotation(model.geometry.rotary, model.geometry.head_dim)
        self._buffers: Activations[NDArray[Any]] = Activations.of(model.geometry, max_rows, np.empty)
        self._kv = kv

    def _attention(self, layer: LayerWeights[native.Weights, F32]) -> native.AttentionHalf:
        return native.AttentionHalf(
            layer.attention_norm,
            layer.query,
            layer.key,
            layer.value,
            layer.query_norm,
            layer.key_norm,
            layer.output,
            self.geometry.norm_eps,
        )

    def _router(self, layer: int, matrix: native.Weights) -> native.ExpertRouter:
        of = self.geometry
        norm = self.weights.layers[layer].ffn_norm
        return native.ExpertRouter(norm, matrix, of.norm_eps, of.experts_used, of.normalise_weights, of.weight_scale)

    def new_cache(self, positions: int) -> native.KvCache:
        """Memory is taken as it is used. RequestError if there cannot be so much."""
        geometry = self.geometry
        try:
            return native.KvCache(geometry.layers, positions, geometry.kv_heads, geometry.head_dim, self._kv)
        except (MemoryError, ValueError) as error:
            raise no_room(positions, geometry, self._kv) from error

    def begin(self, windows: Sequence[Window]) -> list[Step]:
        """Embed the windows' ids and look up their rotations. Together they have `max_rows` rows at most."""
        places = side_by_side(windows)
        return [Step(self, window, self._buffers.part(*place)) for window, place in zip(windows, places, strict=True)]

    def logits(self, rows: list[int]) -> F32:
        """Head of the rows named, a new array (len(rows), vocabulary). NonFiniteError(index into `rows`)."""
        weights = self.weights
        logits = np.empty((len(rows), self.geometry.vocabulary), np.float32)
        if not rows:
            return logits
        normed = self._buffers.x[rows]
        native.rms_norm(normed, weights.output_norm, self.geometry.norm_eps, normed)
        native.matmul(self.pool, weights.head, 0, native.Rows(normed), logits)
        finite = np.isfinite(logits).all(axis=1)
        if not finite.all():
            raise native.NonFiniteError("a logit is NaN or infinite", int(finite.argmin()))
        return logits


class Step:
    """One window on the CPU (a `DenseStep`)."""

    def __init__(self, model: DenseModel, window: Window, buffers: Activations[NDArray[Any]]) -> None:
        """`buffers` are cut to the window's rows."""
        self._model, self._pool = model, model.pool
        self.buffers = buffers
        buffers.x[:] = model.weights.embedding.dequantise(0, window.ids)
        buffers.sums.fill(0)  # the step before may have ended between two layers
        self.sums = LayerSums(host=buffers.sums)
        """Where the next layer's experts are added up, (rows, width)."""
        rotation = model.rotation
        self._native = native.StepBuffers(
            buffers.x,
            buffers.normed,
            buffers.query,
            buffers.key,
            buffers.value,
            buffers.attended,
            buffers.router,
            *native.rope_table(window.row_position, rotation.frequencies, rotation.magnitude),
            [_native(chunk.sequence.cache) for chunk in window.chunks],
            window.row_chunk,
            window.row_position,
        )

    def attend(self, layer: int) -> None:
        """x += attention of x; keys and values of the rows are stored. NonFiniteError(row)."""
        self._model.attention[layer].attend(self._pool, layer, self._native)

    def route(self, layer: int, quantise: bool) -> tuple[native.Rows, I32, F32]:
        """What the experts take, and which of them: activation rows, ids and weights (rows, k). NonFiniteError(row)."""
        return self._model.routers[layer].route(self._pool, self._native, quantise)

    def combine(self) -> None:
        """x += the layer's experts: rounded to fp32 once, however many there were."""
        native.add_combined(self.buffers.x, self.buffers.sums, self._pool)

    def feed_forward(self, layer: int) -> None:
        """x += what a dense layer has in place of experts: one expert for all rows. NonFiniteError(row)."""
        x, out, weights = self.buffers.x, self.buffers.normed, self._model.weights
        native.rms_norm(x, weights.layers[layer].ffn_norm, self._model.geometry.norm_eps, out, self._pool)
        rows, every = native.Rows(out), np.arange(len(x), dtype=np.int32)
        matrices, first, one = weights.feed_forward[layer], np.zeros_like(every), np.ones(len(x), np.float32)
        no_sums = np.empty((0, out.shape[1]), np.int64)
        try:
            native.run_experts(self._pool, *matrices, rows, first, every, one, every, out, no_sums)
        except native.EntryRangeError as error:
            reason = "the feed-forward network's output is not finite or 2**22 or more"
            raise native.NonFiniteError(reason, error.args[1]) from None
        native.add_rows(x, out, self._pool)


def _native(cache: Cache) -> native.KvCache:
    """The cache as the kernels take it: `new_cache` makes no others."""
    assert isinstance(cache, native.KvCache)
    return cache
