"""Writes GGUF files byte by byte, sound ones and deliberately wrong ones, without any library in between."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.quant_types import TensorType

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
"""Numbers of the metadata value types."""

_PATTERN = bytes(range(251))


@dataclass(frozen=True, slots=True)
class Raw:
    """A metadata value as its type number and its bytes, whatever they are."""

    kind: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTensor:
    """A tensor as the header shall state it."""

    name: str | bytes
    shape: tuple[int, ...] = (32,)
    type: int = TensorType.F32
    offset: int | None = None
    """From the start of the data; None puts the tensor after the ones before."""
    bytes: int | None = None
    """Room in the data; None is what type and shape need."""

    @property
    def room(self) -> int:
        """Bytes that the tensor takes in the data."""
        if self.bytes is not None:
            return self.bytes
        count = TensorType(self.type).row_bytes(self.shape[0])
        for size in self.shape[1:]:
            count *= size
        return count


def string(text: str | bytes) -> bytes:
    """A GGUF string."""
    content = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(content)) + content


def value(found: Any) -> bytes:
    """A metadata value with its type: bool, int (32 bits), float (32 bits), str, lists of str or int, or `Raw`."""
    match found:
        case Raw():
            return struct.pack("<I", found.kind) + found.content
        case bool():
            return struct.pack("<I?", BOOL, found)
        case int():
            return struct.pack("<II", U32, found)
        case float():
            return struct.pack("<If", F32, found)
        case str():
            return struct.pack("<I", STRING) + string(found)
        case [str(), *_]:
            return struct.pack("<IIQ", ARRAY, STRING, len(found)) + b"".join(map(string, found))
        case _:
            return struct.pack("<IIQ", ARRAY, I32, len(found)) + struct.pack(f"<{len(found)}i", *found)


def gguf_bytes(
    metadata: Mapping[Any, Any] | Sequence[tuple[Any, Any]],
    tensors: Sequence[RawTensor] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    alignment: int = 32,
    keys: int | None = None,
    tensor_count: int | None = None,
) -> bytes:
    """A whole file. `keys` and `tensor_count` overstate (or understate) what follows; data bytes count up."""
    pairs = list(metadata.items()) if isinstance(metadata, Mapping) else list(metadata)
    header = magic + struct.pack(
        "<IQQ",
        version,
        len(tensors) if tensor_count is None else tensor_count,
        len(pairs) if keys is None else keys,
    )
    header += b"".join(string(key) + value(found) for key, found in pairs)
    data = bytearray()
    for tensor in tensors:
        data += bytes(-len(data) % alignment)
        offset = len(data) if tensor.offset is None else tensor.offset
        header += string(tensor.name) + struct.pack("<I", len(tensor.shape))
        header += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape) + struct.pack("<IQ", tensor.type, offset)
        data += (_PATTERN * (tensor.room // len(_PATTERN) + 1))[: tensor.room]
    return header + bytes(-len(header) % alignment) + bytes(data) if tensors else header


MOE_METADATA: dict[str, Any] = {
    "general.architecture": "qwen3moe",
    "general.type": "model",
    "qwen3moe.block_count": 2,
    "qwen3moe.context_length": 128,
    "qwen3moe.embedding_length": 64,
    "qwen3moe.attention.head_count": 4,
    "qwen3moe.attention.head_count_kv": 2,
    "qwen3moe.attention.key_length": 32,
    "qwen3moe.attention.value_length": 32,
    "qwen3moe.attention.layer_norm_rms_epsilon": 1e-6,
    "qwen3moe.rope.freq_base": 1e6,
    "qwen3moe.expert_count": 4,
    "qwen3moe.expert_used_count": 2,
    "qwen3moe.expert_feed_forward_length": 96,
    "tokenizer.ggml.tokens": ["a", "b", "c", "d", "e"],
}
"""A sound model's metadata; MOE_TENSORS are its tensors, by name."""


def _moe_tensors() -> dict[str, RawTensor]:
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (64, 5), "output_norm": (64,), "output": (64, 5)}
    for layer in range(2):
        of_layer: dict[str, tuple[int, ...]] = {
            "attn_norm": (64,),
            "attn_q": (64, 128),
            "attn_k": (64, 64),
            "attn_v": (64, 64),
            "attn_q_norm": (32,),
            "attn_k_norm": (32,),
            "attn_output": (128, 64),
            "ffn_norm": (64,),
            "ffn_gate_inp": (64, 4),
            "ffn_gate_exps": (64, 96, 4),
            "ffn_up_exps": (64, 96, 4),
            "ffn_down_exps": (96, 64, 4),
        }
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in of_layer.items()}
    matrix = TensorType.Q8_0
    return {
        f"{name}.weight": RawTensor(
            name=f"{name}.weight", shape=shape, type=matrix if len(shape) > 1 else TensorType.F32
        )
        for name, shape in shapes.items()
    }


MOE_TENSORS = _moe_tensors()


def moe_bytes(
    metadata: Mapping[str, Any] | None = None, tensors: Mapping[str, RawTensor | None] | None = None
) -> bytes:
    """A sound small model with some keys and tensors replaced, added, or (None) left out."""
    chosen = {key: found for key, found in {**MOE_METADATA, **(metadata or {})}.items() if found is not None}
    kept = [tensor for tensor in {**MOE_TENSORS, **(tensors or {})}.values() if tensor is not None]
    return gguf_bytes(chosen, kept)
