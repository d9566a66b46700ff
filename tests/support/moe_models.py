"""Writes synthetic `qwen3moe` models with random weights: the same settings give the same file, byte for byte.

Complete and valid files with a byte-level vocabulary. Their text is noise; shapes, types, routing and memory traffic
are those of a real model, for tests, comparisons and benchmarks:

    python tests/support/moe_models.py OUT.gguf --preset bench-mid
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from block_pool import BlockPool
from gguf import GGML_QUANT_SIZES, GGML_QUANT_VERSION, GGUFWriter, RopeScalingType, TokenType
from gguf import GGMLQuantizationType as Type
from k_quants import BLOCK, K_ENCODERS, encode, random_blocks
from numpy.typing import NDArray

MINI_MODELS = Path(__file__).parents[1] / "data" / "mini.json"
"""Small models with known digests and known distances of another engine's logits from float64."""

THIRTY_BILLION: dict[str, Any] = {
    "embd": 2048,
    "heads": 32,
    "kv_heads": 4,
    "head_dim": 128,
    "experts": 128,
    "experts_used": 8,
    "ff_exp": 768,
    "vocab": 37984,
    "ctx": 32768,
    "gate_type": "Q4_K",
    "up_type": "Q4_K",
    "output_type": "Q6_K",
}
"""A model of 30 billion parameters but for its layers, and with a quarter of its vocabulary."""

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {},
    # Every tensor can be a K-quant.
    "tiny-k": {"ff_exp": 256},
    # The demo model's geometry, with room for long prompts.
    "demo-long": {
        "layers": 6,
        "heads": 8,
        "head_dim": 32,
        "ff_exp": 256,
        "vocab": 4096,
        "ctx": 65536,
        "exp_type": "Q4_K",
        "dense_type": "Q4_K",
        "output_type": "Q6_K",
    },
    # 12 of its layers, so that the time for one token is a quarter of the whole model's. 5.1 GB.
    "bench-mid": THIRTY_BILLION | {"layers": 12, "down_type": "Q6_K", "fill": "bytes"},
    # All 48 layers, with types as Q4_K_M mixes them. 18.2 GB, in the time that it takes to write them.
    "wide-48": THIRTY_BILLION | {"layers": 48, "down_type": "Q6_K,Q4_K", "dense_type": "Q4_K", "fill": "pool"},
}

_EXPERT_TYPES = ("gate_type", "up_type", "down_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a synthetic model looks like.

    Types are names as in `gguf.GGMLQuantizationType`; of several, with commas between, layers take one each in turn.
    """

    layers: int = 4
    embd: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    experts: int = 16
    experts_used: int = 4
    ff_exp: int = 128
    vocab: int = 512
    merged: bool = False
    """The vocabulary is filled with tokens that merges make, as real ones are, and not with unused ones."""
    ctx: int = 2048
    rope_base: float = 1e6
    rope_scaling: str = ""
    """"none", "linear" or "yarn"; no such key if empty, as for every setting below that is 0 or empty."""
    rope_factor: float = 0.0
    rope_original: int = 0
    """Positions before the scaling."""
    rope_attn_factor: float = 0.0
    beta_fast: float = 0.0
    beta_slow: float = 0.0
    raw_weights: bool = False
    """The weights of the chosen experts are not divided by their sum."""
    weight_scale: float = 0.0
    dense_layers: int = 0
    """So many first layers have no experts."""
    ff_dense: int = 0
    """Rows of a dense layer's gate and up."""
    eps: float = 1e-6
    seed: int = 1234
    exp_type: str = "Q8_0"
    gate_type: str = ""
    """`exp_type` if empty, as for `up_type` and `down_type`."""
    up_type: str = ""
    down_type: str = ""
    dense_type: str = "Q8_0"
    embd_type: str = ""
    """`dense_type` if empty."""
    output_type: str = ""
    """`embd_type` if empty."""
    tied: bool = False
    """No head of its own: the embedding serves as one."""
    fill: str = "normal"
    """"normal": normally distributed values, then quantised; "bytes": random blocks where the type is a K-quant;
    "pool": the same, from a pool of such blocks, which is faster by far (see block_pool)."""
    name: str = "synthetic-moe"

    @classmethod
    def of(cls, preset: str | None = None, **settings: Any) -> Self:
        """A preset with some settings of one's own; an `exp_type` beats the preset's three."""
        chosen = dict(PRESETS[preset], name=f"synthetic-{preset}") if preset else {}
        if "exp_type" in settings:
            chosen = {name: value for name, value in chosen.items() if name not in _EXPERT_TYPES}
        return cls(**{**chosen, **settings})

    def type_of(self, name: str, layer: int = 0) -> Type:
        """The type of what `name` (as in "gate_type") stands for in a layer, defaults followed."""
        if not getattr(self, name):
            return self.type_of({"embd_type": "dense_type", "output_type": "embd_type"}.get(name, "exp_type"), layer)
        found = getattr(self, name).upper().split(",")
        return Type[found[layer % len(found)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]  # rows first, as in NumPy
    type: Type
    std: float
    mean: float = 0.0

    @property
    def bytes(self) -> int:
        columns, size = GGML_QUANT_SIZES[self.type]
        if self.shape[-1] % columns:
            raise ValueError(f"{self.name}: rows of {self.shape[-1]} are no whole blocks of {self.type.name}")
        return math.prod(self.shape) // columns * size


def write_model(path: Path, preset: str | None = None, **settings: Any) -> Path:
    """Write a model (see `Settings`) under a temporary name, then rename it to `path`, which is returned."""
    chosen = Settings.of(preset, **settings)
    rng = np.random.Generator(np.random.SFC64(chosen.seed))
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    writer = GGUFWriter(unfinished, "qwen3moe")
    _add_metadata(writer, chosen)
    tensors = list(_tensors(chosen))
    for tensor in tensors:
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.bytes, raw_dtype=tensor.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    pool = BlockPool(rng)
    for tensor in tensors:
        writer.write_tensor_data(np.ascontiguousarray(_weights(rng, pool, tensor, chosen.fill)))
    writer.close()
    return unfinished.rename(path)


def mini_model(name: str, folder: Path) -> Path:
    """The model `name` of tests/data/mini.json in `folder`, written unless it is there already."""
    path = folder / f"mini-{name}.gguf"
    if path.exists():
        return path
    arguments: str = json.loads(MINI_MODELS.read_text())[name]["args"]
    return write_model(**_parse([str(path), *arguments.split()]))


def tiny_model(folder: Path, preset: str = "tiny", **settings: Any) -> Path:
    """A model of a few megabytes in `folder`, named after its preset."""
    return write_model(folder / f"{preset}.gguf", preset, **settings)


def _tensors(s: Settings) -> Iterator[_Tensor]:
    """In the file's order, with spreads that keep activations near 1."""
    in_std = s.embd**-0.5
    queries, keys = s.heads * s.head_dim, s.kv_heads * s.head_dim
    residual = 1.0 / np.sqrt(2 * s.layers)  # keeps the growth of the residual stream in hand

    def norm(name: str, columns: int) -> _Tensor:
        return _Tensor(name=f"{name}.weight", shape=(columns,), type=Type.F32, std=0.1, mean=1.0)

    def matrix(name: str, *shape: int, type: Type, std: float = in_std) -> _Tensor:
        return _Tensor(name=f"{name}.weight", shape=shape, type=type, std=std)

    yield matrix("token_embd", s.vocab, s.embd, type=s.type_of("embd_type"), std=in_std if s.tied else 1.0)
    for layer in range(s.layers):
        block, dense = f"blk.{layer}.", s.type_of("dense_type", layer)
        yield norm(block + "attn_norm", s.embd)
        yield matrix(block + "attn_q", queries, s.embd, type=dense)
        yield matrix(block + "attn_k", keys, s.embd, type=dense)
        yield matrix(block + "attn_v", keys, s.embd, type=dense)
        yield norm(block + "attn_q_norm", s.head_dim)
        yield norm(block + "attn_k_norm", s.head_dim)
        yield matrix(block + "attn_output", s.embd, queries, type=dense, std=residual * queries**-0.5)
        yield norm(block + "ffn_norm", s.embd)
        if layer < s.dense_layers:
            yield matrix(block + "ffn_gate", s.ff_dense, s.embd, type=dense, std=1.4 * in_std)
            yield matrix(block + "ffn_up", s.ff_dense, s.embd, type=dense, std=1.4 * in_std)
            yield matrix(block + "ffn_down", s.embd, s.ff_dense, type=dense, std=2.0 * residual * s.ff_dense**-0.5)
            continue
        yield matrix(block + "ffn_gate_inp", s.experts, s.embd, type=Type.F32, std=2.0 * in_std)
        for role in ("gate", "up"):
            kind = s.type_of(f"{role}_type", layer)
            yield matrix(block + f"ffn_{role}_exps", s.experts, s.ff_exp, s.embd, type=kind, std=1.4 * in_std)
        kind, std = s.type_of("down_type", layer), 2.0 * residual * s.ff_exp**-0.5
        yield matrix(block + "ffn_down_exps", s.experts, s.embd, s.ff_exp, type=kind, std=std)
    yield norm("output_norm", s.embd)
    if not s.tied:
        yield matrix("output", s.vocab, s.embd, type=s.type_of("output_type"), std=2.0 * in_std)


def _weights(rng: np.random.Generator, pool: BlockPool, tensor: _Tensor, fill: str) -> NDArray[np.generic]:
    if fill == "pool" and tensor.type in K_ENCODERS:
        *matrices, rows, columns = tensor.shape
        taken = pool.matrices(math.prod(matrices), rows * columns // BLOCK, tensor.type, tensor.std)
        return taken.reshape(*tensor.shape[:-1], -1)
    if fill == "bytes" and tensor.type in K_ENCODERS:
        blocks = random_blocks(rng, math.prod(tensor.shape) // BLOCK, tensor.type, tensor.std)
        return blocks.reshape(*tensor.shape[:-1], -1)
    std, mean = np.float32(tensor.std), np.float32(tensor.mean)
    if len(tensor.shape) == 3:  # matrix by matrix: bounds the float32 scratch
        draws = (rng.standard_normal(tensor.shape[1:], np.float32) * std for _ in range(tensor.shape[0]))
        return np.stack([encode(draw, tensor.type) for draw in draws])
    return encode(rng.standard_normal(tensor.shape, np.float32) * std + mean, tensor.type)


def _add_metadata(writer: GGUFWriter, s: Settings) -> None:
    writer.add_type("model")
    writer.add_name(s.name)
    writer.add_quantization_version(GGML_QUANT_VERSION)
    writer.add_context_length(s.ctx)
    writer.add_embedding_length(s.embd)
    writer.add_block_count(s.layers)
    writer.add_feed_forward_length(s.ff_dense or s.ff_exp * s.experts_used)
    writer.add_expert_feed_forward_length(s.ff_exp)
    writer.add_expert_count(s.experts)
    writer.add_expert_used_count(s.experts_used)
    writer.add_head_count(s.heads)
    writer.add_head_count_kv(s.kv_heads)
    writer.add_key_length(s.head_dim)
    writer.add_value_length(s.head_dim)
    writer.add_layer_norm_rms_eps(s.eps)
    writer.add_rope_freq_base(s.rope_base)
    _add_what_is_seldom(writer, s)
    tokens, kinds, merges = _vocabulary(s.vocab, s.merged)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(s.vocab - 3)
    writer.add_eos_token_id(s.vocab - 1)
    writer.add_pad_token_id(s.vocab - 3)
    writer.add_add_bos_token(False)


def _add_what_is_seldom(writer: GGUFWriter, s: Settings) -> None:
    """Keys that most models do without."""
    if s.rope_scaling:
        writer.add_rope_scaling_type(RopeScalingType(s.rope_scaling))
    if s.raw_weights:
        writer.add_expert_weights_norm(False)
    numbers: tuple[tuple[float, Callable[[Any], None]], ...] = (
        (s.rope_factor, writer.add_rope_scaling_factor),
        (s.rope_original, writer.add_rope_scaling_orig_ctx_len),
        (s.rope_attn_factor, writer.add_rope_scaling_attn_factors),
        (s.beta_fast, writer.add_rope_scaling_yarn_beta_fast),
        (s.beta_slow, writer.add_rope_scaling_yarn_beta_slow),
        (s.weight_scale, writer.add_expert_weights_scale),
        (s.dense_layers, writer.add_leading_dense_block_count),
    )
    for number, add in numbers:
        if number:
            add(number)


def _vocabulary(size: int, merged: bool) -> tuple[list[str], list[int], list[str]]:
    """Tokens, their types, and merges: 256 bytes, a few words, more merges or fillers, then three control tokens."""
    pairs = "t h,th e,i n,a n,an d,e r,o n,r e,in g,h e,\u0120 t,\u0120 the,\u0120 a,\u0120 and"
    merges = pairs.split(",")
    tokens = list(dict.fromkeys([*_byte_characters(), *(pair.replace(" ", "") for pair in merges)]))
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    room = size - len(tokens) - len(control)
    if room < 0:
        raise ValueError(f"a vocabulary of {size} is too small, at least {size - room} tokens expected")
    fillers = [] if merged else [f"[PAD{i}]" for i in range(room)]
    if merged:
        merges += _more_merges(tokens, room)
    kinds = [TokenType.NORMAL] * len(tokens) + [TokenType.UNUSED] * len(fillers) + [TokenType.CONTROL] * len(control)
    return [*tokens, *fillers, *control], [int(kind) for kind in kinds], merges


def _more_merges(tokens: list[str], count: int) -> list[str]:
    """So many merges of `tokens`, which what they make is added to; short tokens come first, as in text."""
    rng, seen = np.random.default_rng(1), set(tokens)
    merges: list[str] = []
    while len(merges) < count:
        for first, second in (rng.random((count - len(merges), 2)) ** 6).tolist():
            left, right = tokens[int(len(tokens) * first)], tokens[int(len(tokens) * second)]
            if left + right not in seen:
                merges.append(f"{left} {right}")
                tokens.append(left + right)
                seen.add(left + right)
    return merges


def _byte_characters() -> list[str]:
    """The printable characters that stand for the 256 bytes in byte-level vocabularies."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _parse(arguments: Sequence[str]) -> dict[str, Any]:
    """The arguments of `write_model` from a command line, those given only."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS), default=argparse.SUPPRESS)
    for setting in fields(Settings):
        option = "--" + setting.name.replace("_", "-")
        if isinstance(setting.default, bool):
            parser.add_argument(option, action="store_true", default=argparse.SUPPRESS)
        else:
            parser.add_argument(option, type=type(setting.default), default=argparse.SUPPRESS)
    return vars(parser.parse_args(arguments))


def main(arguments: Sequence[str]) -> None:
    """The command line: OUT, then any of the settings as options."""
    write_model(**_parse(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
