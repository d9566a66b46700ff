"""Where a model's weights lie: experts as slices of the file's tensors, and the dense tensors that must be there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from protocol.errors import ModelError
from protocol.geometry import EMBEDDING, HEAD, Geometry
from protocol.gguf import TensorInfo
from protocol.gguf_header import shorten
from protocol.quant_types import RUNNABLE, TensorType, runnable_names
from protocol.shards import ModelFiles

ROLES = ("gate", "up", "down")
"""The three matrices of an expert, in the order in which they are checked and hashed."""

_EXPERTS = re.compile(rf"blk\.(\d{{1,6}})\.ffn_({'|'.join(ROLES)})_exps\.weight")

SLOT_ALIGNMENT = 256
"""Where a matrix may begin in a device's memory, in bytes."""


def slot_size(count: int) -> int:
    """`count` bytes rounded up to the next multiple of SLOT_ALIGNMENT."""
    return count + -count % SLOT_ALIGNMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTensor:
    """One matrix of every expert of one layer: expert e is at `offset + e * expert_bytes`."""

    tensor: str
    file: str
    """The file's name without its folder."""
    offset: int
    """Of expert 0, from the start of the file."""
    expert_bytes: int
    type: TensorType
    rows: int
    columns: int
    packed: bool = False
    """Whether groups of rows are interleaved (docs/packs.md)."""

    def check(self, files: ModelFiles, experts: int) -> None:
        """ModelError unless `files` has the tensor exactly as stated here, for `experts` experts, inside its file."""
        found = files.tensor(self.tensor)
        where = f"{found.file.path}: tensor {self.tensor!r}"
        if found.type != self.type:
            raise ModelError(f"{where} has type {found.type.name}, expected {self.type.name}")
        if found.packed != self.packed:
            raise ModelError(f"{where} is{'' if found.packed else ' not'} packed, expected the opposite")
        _check_shape(found, (self.columns, self.rows, experts))
        if found.bytes != self.expert_bytes * experts:
            raise ModelError(
                f"{where} has {found.bytes} bytes, expected {self.expert_bytes * experts} "
                f"({self.expert_bytes} for each of {experts} experts)"
            )
        if found.file.path.name != self.file:
            raise ModelError(f"{where} is here, expected in {self.file!r}")
        if found.offset != self.offset:
            raise ModelError(f"{where} starts at {found.offset}, expected {self.offset}")
        if found.offset + found.bytes > found.file.size:
            raise ModelError(
                f"{where} ends at {found.offset + found.bytes}, expected at most {found.file.size}, the file's size: "
                "was it truncated?"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerExperts:
    """The experts of one layer."""

    gate: RoleTensor
    up: RoleTensor
    down: RoleTensor

    @property
    def roles(self) -> tuple[RoleTensor, RoleTensor, RoleTensor]:
        """Gate, up, down."""
        return self.gate, self.up, self.down

    @property
    def blob_bytes(self) -> int:
        """Bytes of all three matrices of one expert."""
        return sum(role.expert_bytes for role in self.roles)

    @property
    def slot_bytes(self) -> int:
        """Bytes that one expert takes in a device's memory: each matrix begins at a multiple of SLOT_ALIGNMENT."""
        return sum(slot_size(role.expert_bytes) for role in self.roles)

    @property
    def quantised_input(self) -> bool:
        """Whether activations travel as int8: neither gate nor up is a float type."""
        return not (self.gate.type.is_float or self.up.type.is_float)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLayout:
    """Every expert of a model."""

    layers: tuple[LayerExperts | None, ...]
    """By the model's numbers; None for a dense layer, which has no experts."""
    experts: int
    """Of each layer that has experts."""
    width: int
    """Columns of gate and up, rows of down."""
    expert_width: int
    """Rows of gate and up, columns of down."""

    @classmethod
    def of(cls, files: ModelFiles, geometry: Geometry) -> Self:
        """Find all experts. ModelError names tensor, file and both values if one is missing or cannot be computed."""
        experts = (
            LayerExperts(**{role: _role_tensor(files, geometry, layer, role) for role in ROLES})
            for layer in geometry.expert_layers
        )
        layout = cls(
            layers=(*[None] * geometry.dense_layers, *experts),
            experts=geometry.experts,
            width=geometry.width,
            expert_width=geometry.expert_width,
        )
        layout.check(files)
        return layout

    def check(self, files: ModelFiles) -> None:
        """ModelError for the first tensor of `files` that differs from this layout: another model, or damaged."""
        for role in self.role_tensors():
            role.check(files, self.experts)

    def role_tensors(self) -> Iterator[RoleTensor]:
        """Layer by layer: gate, up, down."""
        for _, layer in self.with_experts():
            yield from layer.roles

    def with_experts(self) -> Iterator[tuple[int, LayerExperts]]:
        """The layers that have experts, each with its number in the model."""
        return ((number, layer) for number, layer in enumerate(self.layers) if layer is not None)

    @property
    def largest_blob(self) -> int:
        """Bytes of the largest expert."""
        return max(layer.blob_bytes for _, layer in self.with_experts())


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseTensor:
    """A tensor that every row passes through, as it is expected. Vectors (norms) are F32."""

    name: str
    shape: tuple[int, ...]
    """Columns first, as in the file."""


def expert_tensor(layer: int, role: str) -> str:
    """The name of the tensor with one matrix of each of a layer's experts."""
    return f"blk.{layer}.ffn_{role}_exps.weight"


def layer_of_experts(name: str) -> int | None:
    """The layer whose experts the tensor `name` has; None if it has none."""
    found = _EXPERTS.fullmatch(name)
    return int(found[1]) if found else None


def dense_tensors(geometry: Geometry) -> tuple[DenseTensor, ...]:
    """All tensors but the experts, in the order in which a row meets them."""
    width, head_dim = geometry.width, geometry.head_dim
    queries, keys = geometry.heads * head_dim, geometry.kv_heads * head_dim
    attention: dict[str, tuple[int, ...]] = {
        "attn_norm": (width,),
        "attn_q": (width, queries),
        "attn_k": (width, keys),
        "attn_v": (width, keys),
        "attn_q_norm": (head_dim,),
        "attn_k_norm": (head_dim,),
        "attn_output": (queries, width),
        "ffn_norm": (width,),
    }
    router = {"ffn_gate_inp": (width, geometry.experts)}
    dense = {
        "ffn_gate": (width, geometry.dense_width),
        "ffn_up": (width, geometry.dense_width),
        "ffn_down": (geometry.dense_width, width),
    }
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (width, geometry.vocabulary)}
    for layer in range(geometry.layers):
        of_layer = attention | (router if layer in geometry.expert_layers else dense)
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in of_layer.items()}
    shapes["output_norm.weight"] = (width,)
    if not geometry.tied_head:
        shapes[HEAD] = (width, geometry.vocabulary)
    return tuple(DenseTensor(name=name, shape=shape) for name, shape in shapes.items())


def check_dense(files: ModelFiles, geometry: Geometry) -> None:
    """ModelError unless every dense tensor is there, of its shape and a computable type, and no tensor is left over.

    A share of a model has no dense weights, and not all of the experts, so a coordinator cannot use it.
    """
    files.check_whole("the coordinator needs the whole model, or a whole pack of it")
    for problem in dense_problems(files, geometry):
        raise ModelError(problem)


def dense_problems(files: ModelFiles, geometry: Geometry) -> Iterator[str]:
    """A sentence for each dense tensor that cannot be used, and one for all tensors that nobody expects."""
    dense = dense_tensors(geometry)
    for expected in dense:
        try:
            _check_dense_tensor(files.tensor(expected.name), expected.shape)
        except ModelError as error:
            yield str(error)
    experts = {expert_tensor(layer, role) for layer in geometry.expert_layers for role in ROLES}
    if left_over := sorted(files.tensors.keys() - experts - {tensor.name for tensor in dense}):
        yield (
            f"{files.tensor(left_over[0]).file.path}: tensor {shorten(left_over[0])} is not supported yet for "
            f"{geometry.architecture}; such tensors found: {len(left_over)}, expected none"
        )


def expert_problems(files: ModelFiles, geometry: Geometry) -> Iterator[str]:
    """A sentence for each tensor of experts that cannot be used."""
    for layer in geometry.expert_layers:
        for role in ROLES:
            try:
                _role_tensor(files, geometry, layer, role)
            except ModelError as error:
                yield str(error)


def _role_tensor(files: ModelFiles, geometry: Geometry, layer: int, role: str) -> RoleTensor:
    name, one_each = expert_tensor(layer, role), f"blk.{layer}.ffn_{role}.0.weight"
    if name not in files.tensors and one_each in files.tensors:
        raise ModelError(
            f"{files.tensor(one_each).file.path}: tensor {one_each!r} has one expert alone, as old files do; expected "
            f"{name!r} with all of them: convert the original model again"
        )
    found = files.tensor(name)
    _check_runnable(found)
    columns, rows = geometry.width, geometry.expert_width
    if role == "down":
        columns, rows = rows, columns
    _check_shape(found, (columns, rows, geometry.experts))
    return RoleTensor(
        tensor=found.name,
        file=found.file.path.name,
        offset=found.offset,
        expert_bytes=found.type.row_bytes(columns) * rows,
        type=found.type,
        rows=rows,
        columns=columns,
        packed=found.packed,
    )


def _check_dense_tensor(found: TensorInfo, shape: tuple[int, ...]) -> None:
    _check_shape(found, shape)
    if len(shape) > 1:
        _check_runnable(found)
    elif found.type != TensorType.F32:
        raise ModelError(f"{found.file.path}: tensor {found.name!r} has type {found.type.name}, expected F32")


def _check_runnable(found: TensorInfo) -> None:
    if found.type not in RUNNABLE:
        raise ModelError(
            f"{found.file.path}: tensor {found.name!r} has type {found.type.name}, which is not supported yet; "
            f"supported: {runnable_names()}"
        )


def _check_shape(found: TensorInfo, expected: tuple[int, ...]) -> None:
    if found.shape != expected:
        raise ModelError(
            f"{found.file.path}: tensor {found.name!r} has shape {found.shape}, expected {expected} (columns first)"
        )
