"""The routers of a model and the norms before them, as fp32 matrices: for predictions, which need no exact order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

import native
from protocol.errors import ModelError
from protocol.gguf import TensorInfo
from protocol.messages import F32
from protocol.model import Model
from protocol.quant_types import TensorType


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Routers:
    """Of every layer that has experts, by the model's number."""

    experts: int
    chosen: int
    """Experts that a router chooses for each row."""
    weights: Mapping[int, F32]
    """(experts, width); a view of the file where that has fp32."""
    norms: Mapping[int, F32]
    """(width,): what the layer's normed input was multiplied by."""

    @classmethod
    def of(cls, model: Model) -> Self:
        """Those of an open model, which stays open. ModelError if a tensor is missing or has another shape."""
        of = model.geometry
        model.files.check_whole("the lookahead process needs the routers, which only the whole model has")
        return cls(
            experts=of.experts,
            chosen=of.experts_used,
            weights={
                layer: _matrix(model.files.tensor(f"blk.{layer}.ffn_gate_inp.weight"), (of.experts, of.width))
                for layer in of.expert_layers
            },
            norms={
                layer: _matrix(model.files.tensor(f"blk.{layer}.ffn_norm.weight"), (1, of.width))[0]
                for layer in of.expert_layers
            },
        )

    @property
    def layers(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(sorted(self.weights))


def _matrix(tensor: TensorInfo, shape: tuple[int, int]) -> F32:
    rows, columns = shape
    if tensor.shape not in ((columns, rows), (columns,) if rows == 1 else (columns, rows)):
        raise ModelError(
            f"{tensor.file.path}: tensor {tensor.name!r} has shape {tensor.shape}, expected {(columns, rows)}"
        )
    if tensor.type == TensorType.F32:
        return np.frombuffer(tensor.data, np.float32).reshape(shape)
    weights = native.Weights(tensor.data, int(tensor.type), 1, rows, columns, tensor.packed)
    return weights.dequantise(0, np.arange(rows, dtype=np.int32))
