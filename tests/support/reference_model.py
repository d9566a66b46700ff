"""A qwen3moe forward in float64 over the dequantised weights, independent of everything under test.

It reads the file with the `gguf` package, uses NumPy's own functions and BLAS, and computes every position of a prompt
at once. Nothing here is exact to the bit; it tells how far an exact result may be from the truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
ROLES = ("gate", "up", "down")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forward:
    """What the model makes of a prompt."""

    logits: F64  # (positions, vocabulary)
    routes: NDArray[np.int64]  # (layers, positions, k), of layers that have experts: ids, best first
    margins: F64  # (layers, positions): router logit of the last expert taken less that of the first one left out


class ReferenceModel:
    """All weights as float64: for small models only."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self._fields = reader.fields
        self._tensors: dict[str, F64] = {
            tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            for tensor in reader.tensors
        }
        self.layers = int(self._number("block_count"))
        self.heads = int(self._number("attention.head_count"))
        self.kv_heads = int(self._number("attention.head_count_kv"))
        self.head_dim = int(self._number("attention.key_length"))
        self.experts_used = int(self._number("expert_used_count"))
        self.eps = self._number("attention.layer_norm_rms_epsilon")
        self.normalise = bool(self._number("expert_weights_norm", 1))
        self.weight_scale = self._number("expert_weights_scale", 0) or 1.0
        self.dense_layers = int(self._number("leading_dense_block_count", 0))
        self.frequencies, self.magnitude = self._rotary()

    def forward(self, ids: list[int]) -> Forward:
        """Run the ids at positions 0, 1, ..."""
        x = self._tensors["token_embd.weight"][ids]
        routes, margins = [], []
        for layer in range(self.layers):
            x = x + self._attention(layer, x)
            h = self._rms_norm(x, self._weight(layer, "ffn_norm"))
            if layer < self.dense_layers:
                x = x + _feed_forward(h, *(self._weight(layer, f"ffn_{role}") for role in ROLES))
                continue
            chosen, shares, margin = self._route(layer, h)
            x = x + self._experts(layer, h, chosen, shares)
            routes.append(chosen)
            margins.append(margin)
        head = self._tensors.get("output.weight", self._tensors["token_embd.weight"])
        logits = self._rms_norm(x, self._tensors["output_norm.weight"]) @ head.T
        return Forward(logits=logits, routes=np.stack(routes), margins=np.stack(margins))

    def _attention(self, layer: int, x: F64) -> F64:
        rows = len(x)
        h = self._rms_norm(x, self._weight(layer, "attn_norm"))
        query = (h @ self._weight(layer, "attn_q").T).reshape(rows, self.heads, self.head_dim)
        key = (h @ self._weight(layer, "attn_k").T).reshape(rows, self.kv_heads, self.head_dim)
        value = (h @ self._weight(layer, "attn_v").T).reshape(rows, self.kv_heads, self.head_dim)
        query = self._rope(self._rms_norm(query, self._weight(layer, "attn_q_norm")))
        key = self._rope(self._rms_norm(key, self._weight(layer, "attn_k_norm")))
        shared_by = self.heads // self.kv_heads
        key, value = key.repeat(shared_by, axis=1), value.repeat(shared_by, axis=1)
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(self.head_dim)
        scores = np.where(np.tri(rows, dtype=bool), scores, -np.inf)
        attended: F64 = np.einsum("hqk,khd->qhd", _softmax(scores), value).reshape(rows, -1)
        out: F64 = attended @ self._weight(layer, "attn_output").T
        return out

    def _route(self, layer: int, h: F64) -> tuple[NDArray[np.int64], F64, F64]:
        logits = h @ self._weight(layer, "ffn_gate_inp").T
        order = np.argsort(-logits, axis=1, kind="stable")
        ranked = np.take_along_axis(logits, order, axis=1)
        k = self.experts_used
        margin = ranked[:, k - 1] - ranked[:, k] if k < ranked.shape[1] else np.full(len(h), np.inf)
        shares = _softmax(ranked[:, :k]) if self.normalise else _softmax(ranked)[:, :k]
        return order[:, :k], shares * self.weight_scale, margin

    def _experts(self, layer: int, h: F64, chosen: NDArray[np.int64], shares: F64) -> F64:
        gate, up, down = (self._weight(layer, f"ffn_{role}_exps") for role in ROLES)
        out = np.zeros_like(h)
        for expert in np.unique(chosen):
            row, rank = np.nonzero(chosen == expert)
            out[row] += shares[row, rank, None] * _feed_forward(h[row], gate[expert], up[expert], down[expert])
        return out

    def _rms_norm(self, x: F64, weight: F64) -> F64:
        mean: F64 = (x * x).mean(axis=-1, keepdims=True)
        return x / np.sqrt(mean + self.eps) * weight

    def _rope(self, x: F64) -> F64:
        half = self.head_dim // 2
        angle = np.arange(len(x))[:, None, None] * self.frequencies
        left, right = x[..., :half], x[..., half:]
        cos, sin = self.magnitude * np.cos(angle), self.magnitude * np.sin(angle)
        return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)

    def _rotary(self) -> tuple[F64, float]:
        """Angle of each column pair per position, and what cos and sin are multiplied by."""
        half, base = self.head_dim // 2, self._number("rope.freq_base")
        frequencies: F64 = base ** (-np.arange(half) / half)
        magnitude = self._number("rope.scaling.attn_factor", 1)
        kind, factor = self._text("rope.scaling.type", "linear"), self._number("rope.scaling.factor", 1)
        if kind != "yarn":
            return frequencies / factor, magnitude
        context = self._number("rope.scaling.original_context_length", self._number("context_length"))
        # How often a pair turns in the original context says whether it is interpolated.
        turns = (self._number("rope.scaling.yarn_beta_fast", 32), self._number("rope.scaling.yarn_beta_slow", 1))
        fast, slow = (half * math.log(context / (2 * math.pi * count)) / math.log(base) for count in turns)
        low, high = max(math.floor(fast), 0), min(math.ceil(slow), self.head_dim - 1)
        interpolated = np.clip((np.arange(half) - low) / max(high - low, 0.001), 0, 1)
        mixed = frequencies * (1 - interpolated) + frequencies / factor * interpolated
        return mixed, magnitude * (1 + 0.1 * math.log(factor))

    def _weight(self, layer: int, role: str) -> F64:
        return self._tensors[f"blk.{layer}.{role}.weight"]

    def _number(self, key: str, default: float | None = None) -> float:
        field = self._fields.get(f"qwen3moe.{key}")
        if field is None and default is not None:
            return default
        return float(self._fields[f"qwen3moe.{key}"].contents())

    def _text(self, key: str, default: str) -> str:
        field = self._fields.get(f"qwen3moe.{key}")
        return default if field is None else str(field.contents())


def _feed_forward(x: F64, gate: F64, up: F64, down: F64) -> F64:
    gated = x @ gate.T
    out: F64 = (gated / (1 + np.exp(-gated)) * (x @ up.T)) @ down.T
    return out


def _softmax(x: F64) -> F64:
    exponentials: F64 = np.exp(x - x.max(axis=-1, keepdims=True))
    total: F64 = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / total
