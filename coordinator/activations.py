"""The buffers of a step, in whatever memory a dense half has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np

from protocol.geometry import Geometry

Array = TypeVar("Array")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Activations(Generic[Array]):
    """Used again by the next step."""

    x: Array  # (rows, width) f32: the residual stream
    normed: Array  # (rows, width) f32: input of a half layer, then output of the attention
    query: Array  # (rows, heads, head_dim) f32
    key: Array  # (rows, kv_heads, head_dim) f32
    value: Array  # (rows, kv_heads, head_dim) f32
    attended: Array  # (rows, heads * head_dim) f32
    router: Array  # (rows, experts) f32
    sums: Array  # (rows, width) i64: weighted expert outputs on the fixed-point grid

    @classmethod
    def of(cls, geometry: Geometry, rows: int, empty: Callable[[tuple[int, ...], Any], Array]) -> Activations[Array]:
        """Buffers for `rows` rows, made by `empty(shape, dtype)`."""
        heads, kv_heads, head_dim = geometry.heads, geometry.kv_heads, geometry.head_dim
        return cls(
            x=empty((rows, geometry.width), np.float32),
            normed=empty((rows, geometry.width), np.float32),
            query=empty((rows, heads, head_dim), np.float32),
            key=empty((rows, kv_heads, head_dim), np.float32),
            value=empty((rows, kv_heads, head_dim), np.float32),
            attended=empty((rows, heads * head_dim), np.float32),
            router=empty((rows, geometry.experts), np.float32),
            sums=empty((rows, geometry.width), np.int64),
        )

    def part(self, first: int, end: int) -> Activations[Array]:
        """The same buffers, cut to the rows from `first` up to, not including, `end`."""
        return Activations(**{each.name: getattr(self, each.name)[first:end] for each in fields(self)})
