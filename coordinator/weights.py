"""The dense weights of a qwen3moe model: everything but its experts, used where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import native
from protocol.geometry import EMBEDDING, HEAD
from protocol.layout import ROLES, check_dense
from protocol.messages import F32
from protocol.model import Model
from protocol.shards import ModelFiles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerWeights:
    """What every layer has. Matrices are views of the file, norms fp32 copies."""

    attention_norm: F32  # (width,)
    query: native.Weights  # heads * head_dim x width
    key: native.Weights  # kv_heads * head_dim x width
    value: native.Weights  # kv_heads * head_dim x width
    query_norm: F32  # (head_dim,)
    key_norm: F32  # (head_dim,)
    output: native.Weights  # width x heads * head_dim
    ffn_norm: F32  # (width,)


class FeedForward(NamedTuple):
    """What a dense layer has in place of experts."""

    gate: native.Weights  # dense_width x width
    up: native.Weights  # dense_width x width
    down: native.Weights  # width x dense_width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseWeights:
    """All layers, the embedding, and the head (the embedding again where the file ties them)."""

    embedding: native.Weights  # vocabulary x width
    layers: tuple[LayerWeights, ...]
    routers: Mapping[int, native.Weights]
    """Of the layers that have experts: experts x width."""
    feed_forward: Mapping[int, FeedForward]
    """Of the dense layers."""
    output_norm: F32  # (width,)
    head: native.Weights  # vocabulary x width

    @classmethod
    def of(cls, model: Model) -> DenseWeights:
        """ModelError unless every dense tensor is there, fits the geometry and has a type that the kernels run."""
        files, geometry = model.files, model.geometry
        check_dense(files, geometry)
        embedding = _matrix(files, EMBEDDING)
        return cls(
            embedding=embedding,
            layers=tuple(_layer(files, index) for index in range(geometry.layers)),
            routers={index: _matrix(files, f"blk.{index}.ffn_gate_inp.weight") for index in geometry.expert_layers},
            feed_forward={index: _feed_forward(files, index) for index in range(geometry.dense_layers)},
            output_norm=_vector(files, "output_norm.weight"),
            head=embedding if geometry.tied_head else _matrix(files, HEAD),
        )


def _layer(files: ModelFiles, index: int) -> LayerWeights:
    def vector(role: str) -> F32:
        return _vector(files, f"blk.{index}.{role}.weight")

    def matrix(role: str) -> native.Weights:
        return _matrix(files, f"blk.{index}.{role}.weight")

    return LayerWeights(
        attention_norm=vector("attn_norm"),
        query=matrix("attn_q"),
        key=matrix("attn_k"),
        value=matrix("attn_v"),
        query_norm=vector("attn_q_norm"),
        key_norm=vector("attn_k_norm"),
        output=matrix("attn_output"),
        ffn_norm=vector("ffn_norm"),
    )


def _feed_forward(files: ModelFiles, index: int) -> FeedForward:
    return FeedForward(*(_matrix(files, f"blk.{index}.ffn_{role}.weight") for role in ROLES))


def _matrix(files: ModelFiles, name: str) -> native.Weights:
    """A view of the tensor, whose file must stay mapped."""
    info = files.tensor(name)
    columns, rows = info.shape
    return native.Weights(info.data, int(info.type), 1, rows, columns)


def _vector(files: ModelFiles, name: str) -> F32:
    """A copy of the tensor, read past the mapping: a file that shrank meanwhile is a ModelError."""
    info = files.tensor(name)
    return np.frombuffer(info.file.read(info.offset, info.bytes), "<f4").astype(np.float32)
