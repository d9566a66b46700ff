"""The dense weights of a qwen3moe model: everything but its experts, wherever a dense half keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

import native
from protocol.geometry import EMBEDDING, HEAD
from protocol.gguf import TensorInfo
from protocol.layout import ROLES, check_dense
from protocol.messages import F32
from protocol.model import Model

Matrix = TypeVar("Matrix")
Vector = TypeVar("Vector")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerWeights(Generic[Matrix, Vector]):
    """What every layer has. Vectors are fp32."""

    attention_norm: Vector  # (width,)
    query: Matrix  # heads * head_dim x width
    key: Matrix  # kv_heads * head_dim x width
    value: Matrix  # kv_heads * head_dim x width
    query_norm: Vector  # (head_dim,)
    key_norm: Vector  # (head_dim,)
    output: Matrix  # width x heads * head_dim
    ffn_norm: Vector  # (width,)


class FeedForward(NamedTuple, Generic[Matrix]):
    """What a dense layer has in place of experts."""

    gate: Matrix  # dense_width x width
    up: Matrix  # dense_width x width
    down: Matrix  # width x dense_width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseWeights(Generic[Matrix, Vector]):
    """All layers, the embedding, and the head (the embedding again where the file ties them)."""

    embedding: native.Weights  # vocabulary x width: rows are looked up where the file lies
    layers: tuple[LayerWeights[Matrix, Vector], ...]
    routers: Mapping[int, Matrix]
    """Of the layers that have experts: experts x width."""
    feed_forward: Mapping[int, FeedForward[Matrix]]
    """Of the dense layers."""
    output_norm: Vector  # (width,)
    head: Matrix  # vocabulary x width

    @classmethod
    def of(cls, model: Model, matrix: Callable[[TensorInfo], Matrix], vector: Callable[[F32], Vector]) -> Self:
        """Made of what `matrix` and `vector` make of tensors.

        ModelError unless every dense tensor is there, fits the geometry and has a type that the kernels run.
        """
        files, geometry = model.files, model.geometry
        check_dense(files, geometry)

        def named(name: str) -> Matrix:
            return matrix(files.tensor(f"{name}.weight"))

        def norm(name: str) -> Vector:
            return vector(_vector(files.tensor(f"{name}.weight")))

        def layer(at: str) -> LayerWeights[Matrix, Vector]:
            return LayerWeights(
                attention_norm=norm(f"{at}.attn_norm"),
                query=named(f"{at}.attn_q"),
                key=named(f"{at}.attn_k"),
                value=named(f"{at}.attn_v"),
                query_norm=norm(f"{at}.attn_q_norm"),
                key_norm=norm(f"{at}.attn_k_norm"),
                output=named(f"{at}.attn_output"),
                ffn_norm=norm(f"{at}.ffn_norm"),
            )

        return cls(
            embedding=mapped_matrix(files.tensor(EMBEDDING)),
            layers=tuple(layer(f"blk.{index}") for index in range(geometry.layers)),
            routers={index: named(f"blk.{index}.ffn_gate_inp") for index in geometry.expert_layers},
            feed_forward={
                index: FeedForward(*(named(f"blk.{index}.ffn_{role}") for role in ROLES))
                for index in range(geometry.dense_layers)
            },
            output_norm=norm("output_norm"),
            head=matrix(files.tensor(EMBEDDING if geometry.tied_head else HEAD)),
        )


MappedWeights: TypeAlias = DenseWeights[native.Weights, F32]
"""Matrices used where the file lies."""


def mapped_weights(model: Model) -> MappedWeights:
    """The weights of a model whose files stay mapped. ModelError as from `DenseWeights.of`."""
    return DenseWeights.of(model, mapped_matrix, lambda vector: vector)


def mapped_matrix(info: TensorInfo) -> native.Weights:
    """A view of the tensor, whose file must stay mapped."""
    columns, rows = info.shape
    return native.Weights(info.data, int(info.type), 1, rows, columns, info.packed)


def _vector(info: TensorInfo) -> F32:
    """A copy of the tensor, read past the mapping: a file that shrank meanwhile is a ModelError."""
    return np.frombuffer(info.file.read(info.offset, info.bytes), "<f4").astype(np.float32)
