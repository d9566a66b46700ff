"""The numbers that shape a model, read from its metadata; whatever would be computed wrongly is refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from protocol.errors import ModelError
from protocol.gguf_header import shorten
from protocol.gguf_strings import StringArray
from protocol.messages import MAX_ENTRIES_PER_ROW
from protocol.model_keys import ModelKeys
from protocol.rotary import Rotary
from protocol.shards import ModelFiles

ARCHITECTURES = ("qwen3moe",)
"""What can be computed."""

EMBEDDING = "token_embd.weight"
HEAD = "output.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """One model's sizes and constants, consistent with each other; `layout` compares them with the tensors."""

    architecture: str
    layers: int
    dense_layers: int
    """How many of the first layers have no experts, but one feed-forward network for all rows."""
    dense_width: int
    """Rows of a dense layer's gate and up; 0 if there is no such layer."""
    width: int
    """Columns of an activation row."""
    heads: int
    kv_heads: int
    head_dim: int
    """Columns of one head, of queries, keys and values alike; even."""
    experts: int
    """Of each layer that has experts."""
    experts_used: int
    """Experts that the router chooses for each row."""
    expert_width: int
    """Rows of an expert's gate and up."""
    vocabulary: int
    context: int
    """Positions the model was made for."""
    rotary: Rotary
    norm_eps: float
    normalise_weights: bool
    """Whether the weights of the chosen experts are divided by their sum."""
    weight_scale: float
    """What they are multiplied by after that."""
    tied_head: bool
    """Whether the embedding serves as the head too."""

    @classmethod
    def of(cls, files: ModelFiles) -> Self:
        """Read and check. ModelError names the key, what was found and what was expected."""
        geometry = cls.read(files)
        for problem in geometry.unsupported(files):
            raise ModelError(problem)
        return geometry

    @classmethod
    def read(cls, files: ModelFiles) -> Self:
        """The numbers alone: ModelError if one is missing or cannot be, none for keys that are not computed."""
        keys = ModelKeys(files.metadata, ARCHITECTURES)
        width, heads = keys.size("embedding_length"), keys.size("attention.head_count")
        dense_layers, context = keys.count("leading_dense_block_count"), keys.size("context_length")
        geometry = cls(
            architecture=keys.architecture,
            layers=keys.size("block_count"),
            dense_layers=dense_layers,
            dense_width=keys.size("feed_forward_length") if dense_layers else 0,
            width=width,
            heads=heads,
            kv_heads=keys.size("attention.head_count_kv", heads),
            head_dim=keys.size("attention.key_length", width // heads),
            experts=keys.size("expert_count"),
            experts_used=keys.size("expert_used_count"),
            expert_width=keys.size("expert_feed_forward_length"),
            vocabulary=_vocabulary(files),
            context=context,
            rotary=Rotary.of(keys, context),
            norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
            normalise_weights=keys.flag("expert_weights_norm", True),
            weight_scale=keys.number("expert_weights_scale", 1.0, unset=0.0),
            tied_head=HEAD not in files.tensors,
        )
        geometry._check(files)
        return geometry

    def unsupported(self, files: ModelFiles) -> Iterator[str]:
        """A sentence for each key with an effect that is not computed."""
        effects = {f"{self.architecture}.{name}": trivial for name, trivial in _trivial(self).items()}
        for key, trivial in {"general.type": ("model",), **effects}.items():
            found = files.metadata.get(key)
            scalar = isinstance(found, (bool, int, float, str))
            if found is None or (scalar and found in trivial):
                continue
            value = (shorten(found) if isinstance(found, str) else found) if scalar else "an array"
            expected = f"expected {' or '.join(map(str, trivial))}" if trivial else "expected none"
            yield f"{files.path}: {key!r} is {value}, which is not supported yet; {expected}"

    @property
    def expert_layers(self) -> range:
        """The layers that have experts."""
        return range(self.dense_layers, self.layers)

    def handshake(self) -> dict[str, int]:
        """The numbers that a holder of experts must agree with."""
        return {
            "layers": self.layers,
            "dense_layers": self.dense_layers,
            "experts": self.experts,
            "width": self.width,
            "expert_width": self.expert_width,
        }

    def _check(self, files: ModelFiles) -> None:
        for wrong, problem in (
            (self.experts_used > self.experts, f"{self.experts_used} experts used of {self.experts}"),
            (
                self.experts_used > MAX_ENTRIES_PER_ROW,
                f"{self.experts_used} experts used, expected at most {MAX_ENTRIES_PER_ROW}",
            ),
            (
                self.dense_layers >= self.layers,
                f"{self.dense_layers} dense layers of {self.layers}, expected at least one layer with experts",
            ),
            (self.heads % self.kv_heads, f"{self.heads} heads are no multiple of {self.kv_heads} key-value heads"),
            (self.head_dim % 2, f"a head of {self.head_dim} columns, expected an even number"),
            # Each layer has tensors of its own: bounds everything that is built per layer from here on.
            (self.layers > len(files.tensors), f"{self.layers} layers stated, but only {len(files.tensors)} tensors"),
        ):
            if wrong:
                raise ModelError(f"{files.path}: {problem}")


def _trivial(geometry: Geometry) -> Mapping[str, tuple[Any, ...]]:
    """Keys whose effect is not computed, each with the values that have none."""
    return {
        "vocab_size": (geometry.vocabulary,),
        "expert_shared_count": (0,),
        "expert_shared_feed_forward_length": (0,),
        "expert_group_count": (0, 1),
        "expert_group_used_count": (0, 1),
        "expert_gating_func": (0, 1),  # unset, softmax
        "interleave_moe_layer_step": (0, 1),
        "moe_every_n_layers": (0, 1),
        "nextn_predict_layers": (0,),
        "attention.value_length": (geometry.head_dim,),
        "attention.scale": (0, float(np.float32(geometry.head_dim**-0.5))),
        "attention.causal": (True,),
        "attention.sliding_window": (0,),
        "attention.clamp_kqv": (0,),
        "attention.max_alibi_bias": (0,),
        "attn_logit_softcapping": (0,),
        "final_logit_softcapping": (0,),
        "router_logit_softcapping": (0,),
        "logit_scale": (0, 1),
        "residual_scale": (0, 1),
        "embedding_scale": (0, 1),
        "use_parallel_residual": (False,),
        **geometry.rotary.trivial(geometry.head_dim),
    }


def _vocabulary(files: ModelFiles) -> int:
    """Rows of the embedding, the same as the tokenizer's tokens where the file has them."""
    shape = files.tensor(EMBEDDING).shape
    if len(shape) != 2:
        raise ModelError(f"{files.path}: tensor {EMBEDDING!r} has shape {shape}, expected (width, vocabulary)")
    tokens = files.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, StringArray) and len(tokens) != shape[1]:
        raise ModelError(f"{files.path}: {len(tokens)} tokens, but tensor {EMBEDDING!r} has {shape[1]} rows")
    return shape[1]
