"""A qwen3moe forward in float64 over the dequantised weights, independent of everything under test.

It reads the file with the `gguf` package, uses NumPy's own functions and BLAS, and computes every position of a prompt
at once. Nothing here is exact to the bit; it tells how far an exact result may be from the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forward:
    """What the model makes of a prompt."""

    logits: F64  # (positions, vocabulary)
    routes: NDArray[np.int64]  # (layers, positions, k): expert ids, best first
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
        self.rope_base = self._number("rope.freq_base")

    def forward(self, ids: list[int]) -> Forward:
        """Run the ids at positions 0, 1, ..."""
        x = self._tensors["token_embd.weight"][ids]
        routes, margins = [], []
        for layer in range(self.layers):
            x = x + self._attention(layer, x)
            h = self._rms_norm(x, self._weight(layer, "ffn_norm"))
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
        return order[:, :k], _softmax(ranked[:, :k]), margin

    def _experts(self, layer: int, h: F64, chosen: NDArray[np.int64], shares: F64) -> F64:
        gate, up, down = (self._weight(layer, f"ffn_{role}_exps") for role in ("gate", "up", "down"))
        out = np.zeros_like(h)
        for expert in np.unique(chosen):
            row, rank = np.nonzero(chosen == expert)
            gated = h[row] @ gate[expert].T
            inner = gated / (1 + np.exp(-gated)) * (h[row] @ up[expert].T)
            out[row] += shares[row, rank, None] * (inner @ down[expert].T)
        return out

    def _rms_norm(self, x: F64, weight: F64) -> F64:
        mean: F64 = (x * x).mean(axis=-1, keepdims=True)
        return x / np.sqrt(mean + self.eps) * weight

    def _rope(self, x: F64) -> F64:
        half = self.head_dim // 2
        angle = np.arange(len(x))[:, None, None] * self.rope_base ** (-np.arange(half) / half)
        left, right = x[..., :half], x[..., half:]
        cos, sin = np.cos(angle), np.sin(angle)
        return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)

    def _weight(self, layer: int, role: str) -> F64:
        return self._tensors[f"blk.{layer}.{role}.weight"]

    def _number(self, key: str) -> float:
        return float(self._fields[f"qwen3moe.{key}"].contents())


def _softmax(x: F64) -> F64:
    exponentials: F64 = np.exp(x - x.max(axis=-1, keepdims=True))
    total: F64 = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / total
