"""Bytes of weights that one token must read, by part, from where a model's tensors lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.geometry import EMBEDDING, HEAD
from protocol.layout import ROLES, dense_tensors
from protocol.model import Model

GATE_UP, DOWN = "experts: gate, up", "experts: down"
QUERY_KEY_VALUE, OUTPUT = "attention: q, k, v", "attention: output"
ROUTER, DENSE, NORMS, HEAD_PART, ROW = "router", "dense layers", "norms", "head", "embedding, one row"
PARTS = (GATE_UP, DOWN, QUERY_KEY_VALUE, OUTPUT, ROUTER, DENSE, NORMS, HEAD_PART, ROW)

_OF_LAYER = {
    "attn_q": QUERY_KEY_VALUE,
    "attn_k": QUERY_KEY_VALUE,
    "attn_v": QUERY_KEY_VALUE,
    "attn_output": OUTPUT,
    "ffn_gate_inp": ROUTER,
    **{f"ffn_{role}": DENSE for role in ROLES},
}
"""By the tensor's name between its layer and "weight"."""


@dataclass(slots=True, kw_only=True)
class Part:
    """Some of a model's weights, in bytes."""

    read: int = 0
    """For one token."""
    stored: int = 0
    """In the file."""


def token_bytes(model: Model) -> dict[str, Part]:
    """The parts that the model has, in the order of PARTS. The cache of keys and values is none of them."""
    found = {name: Part() for name in PARTS}
    for name, read, stored in _tensors(model):
        found[name].read += read
        found[name].stored += stored
    return {name: part for name, part in found.items() if part.stored}


def read_by_token(model: Model) -> int:
    """All of it."""
    return sum(part.read for part in token_bytes(model).values())


def part_of(tensor: str) -> str:
    """The part of a tensor that is no expert's and not the embedding."""
    if tensor == HEAD:
        return HEAD_PART
    return _OF_LAYER.get(tensor.removesuffix(".weight").split(".")[-1], NORMS)


def _tensors(model: Model) -> Iterator[tuple[str, int, int]]:
    """Of each tensor its part, and how many bytes of it are read for a token and stored."""
    geometry, layout = model.geometry, model.layout
    for _, layer in layout.with_experts():
        for part, role in ((GATE_UP, layer.gate), (GATE_UP, layer.up), (DOWN, layer.down)):
            yield part, role.expert_bytes * geometry.experts_used, role.expert_bytes * layout.experts
    for tensor in dense_tensors(geometry):
        stored = model.files.tensor(tensor.name).bytes
        if tensor.name != EMBEDDING:
            yield part_of(tensor.name), stored, stored
            continue
        yield ROW, stored // geometry.vocabulary, stored
        if geometry.tied_head:
            yield HEAD_PART, stored, stored
