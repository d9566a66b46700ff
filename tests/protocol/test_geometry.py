"""Reading the numbers of a model: defaults, contradictions, and everything that would be computed wrongly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_bytes import F32, I64, U64, Raw, RawTensor, moe_bytes

from protocol.errors import ModelError
from protocol.geometry import Geometry
from protocol.rotary import RopeScaling, Rotary
from protocol.shards import ModelFiles

Read = Callable[..., Geometry]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The geometry of a sound small model with some keys (and tensors) replaced."""

    def read(metadata: dict[str, Any] | None = None, tensors: dict[str, RawTensor | None] | None = None) -> Geometry:
        path = tmp_path / "model.gguf"
        path.write_bytes(moe_bytes(metadata, tensors))
        with ModelFiles.open(path) as gguf:
            return Geometry.of(gguf)

    return read


def test_a_sound_model(read: Read) -> None:
    geometry = read()
    assert geometry == Geometry(
        architecture="qwen3moe",
        layers=2,
        dense_layers=0,
        dense_width=0,
        width=64,
        heads=4,
        kv_heads=2,
        head_dim=32,
        experts=4,
        experts_used=2,
        expert_width=96,
        vocabulary=5,
        context=128,
        rotary=Rotary(base=1e6, original_context=128),
        norm_eps=float(np.float32(1e-6)),
        normalise_weights=True,
        weight_scale=1.0,
        tied_head=False,
    )
    assert geometry.handshake() == {"layers": 2, "dense_layers": 0, "experts": 4, "width": 64, "expert_width": 96}


def test_the_demo_model(demo_model: Path) -> None:
    with ModelFiles.open(demo_model) as gguf:
        geometry = Geometry.of(gguf)
    assert (geometry.layers, geometry.experts, geometry.experts_used, geometry.vocabulary) == (6, 16, 4, 4096)


def test_defaults(read: Read) -> None:
    left_out = ["attention.key_length", "attention.value_length", "attention.head_count_kv", "rope.freq_base"]
    geometry = read({f"qwen3moe.{name}": None for name in left_out})
    assert (geometry.head_dim, geometry.kv_heads, geometry.rotary.base) == (16, 4, 10_000.0)


def test_without_a_head_the_embedding_serves(read: Read) -> None:
    assert read(tensors={"output.weight": None}).tied_head


def test_without_a_tokenizer_the_embedding_counts(read: Read) -> None:
    assert read({"tokenizer.ggml.tokens": None}).vocabulary == 5


@pytest.mark.parametrize("found", ["llama", "qwen3", "\x1b[31m", ""])
def test_other_architectures_are_refused_with_those_supported(read: Read, found: str) -> None:
    with pytest.raises(
        ModelError, match=r"model\.gguf: architecture .* is not supported; supported: qwen3moe"
    ) as caught:
        read({"general.architecture": found})
    assert repr(found) in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
    ],
)
def test_missing_keys_are_named(read: Read, name: str) -> None:
    with pytest.raises(ModelError, match=rf"model\.gguf: key 'qwen3moe\.{name}' is missing"):
        read({f"qwen3moe.{name}": None})


def test_missing_architecture(read: Read) -> None:
    with pytest.raises(ModelError, match=r"key 'general\.architecture' is missing"):
        read({"general.architecture": None})


@pytest.mark.parametrize("name", ["block_count", "embedding_length", "attention.key_length", "expert_count"])
@pytest.mark.parametrize(
    ("found", "message"),
    [
        (0, "is 0, expected 1 to 2147483647"),
        (Raw(I64, b"\xff" * 8), "is -1, expected 1 to"),
        (Raw(U64, b"\xff" * 8), "is 18446744073709551615, expected 1 to"),
        ("4", "is the string '4', expected an integer"),
        (True, "is bool True, expected an integer"),
        (2.0, r"is float 2\.0, expected an integer"),
        ([2, 2], "is an array, expected an integer"),
    ],
)
def test_bad_sizes(read: Read, name: str, found: object, message: str) -> None:
    with pytest.raises(ModelError, match=rf"'qwen3moe\.{name}' {message}"):
        read({f"qwen3moe.{name}": found})


@pytest.mark.parametrize(
    ("name", "expected", "more"),
    [
        ("attention.layer_norm_rms_epsilon", "above 0", [0.0]),
        ("expert_weights_scale", "above 0", []),  # 0 is unset
        ("rope.freq_base", "above 1", [0.0, 1.0]),
        ("rope.scale_linear", "of at least 1", [-1.0, 0.5]),
        ("rope.scaling.factor", "of at least 1", [-1.0, 0.5]),
        ("rope.scaling.attn_factor", "above 0", [0.0]),
        ("rope.scaling.yarn_beta_fast", "above 0", [0.0]),
        ("rope.scaling.yarn_beta_slow", "above 0", [0.0]),
    ],
)
def test_bad_constants(read: Read, name: str, expected: str, more: list[float]) -> None:
    for found in [-1.0, float("nan"), float("inf"), *more]:
        with pytest.raises(ModelError, match=rf"'qwen3moe\.{name}' is {found}, expected a number {expected}$"):
            read({f"qwen3moe.{name}": found})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expert_used_count": 5}, "5 experts used of 4"),
        ({"expert_used_count": 32, "expert_count": 64}, "32 experts used, expected at most 31"),
        ({"attention.head_count_kv": 3}, "4 heads are no multiple of 3 key-value heads"),
        ({"attention.key_length": 31, "attention.value_length": 31}, "a head of 31 columns, expected an even number"),
        (
            {"attention.key_length": None, "attention.head_count": 128},
            r"key 'qwen3moe\.attention\.key_length' is missing",
        ),
        ({"block_count": 2**31 - 1}, "2147483647 layers stated, but only 27 tensors"),
        (
            {"leading_dense_block_count": 2, "feed_forward_length": 96},
            "2 dense layers of 2, expected at least one layer with experts",
        ),
        ({"leading_dense_block_count": 1}, r"key 'qwen3moe\.feed_forward_length' is missing"),
        (
            {"leading_dense_block_count": Raw(I64, b"\xff" * 8)},
            r"'qwen3moe\.leading_dense_block_count' is -1, expected 0 to 2147483647",
        ),
        (
            {"rope.scaling.original_context_length": Raw(I64, b"\xff" * 8)},
            "original_context_length' is -1, expected 0 to",
        ),
        (
            {"rope.scaling.type": "none", "rope.scaling.factor": 4.0},
            r"'qwen3moe\.rope\.scaling\.factor' is 4\.0, expected 1, for the scaling's type is none",
        ),
        (
            {"rope.scaling.factor": 4.0, "rope.scale_linear": 2.0},
            r"'qwen3moe\.rope\.scale_linear' is 2\.0, expected 4, which is rope\.scaling\.factor",
        ),
        (
            {"rope.scaling.yarn_beta_fast": 2.0, "rope.scaling.yarn_beta_slow": 2.0},
            r"'qwen3moe\.rope\.scaling\.yarn_beta_fast' is 2\.0, expected a number above 2, which is yarn_beta_slow",
        ),
    ],
)
def test_contradictions(read: Read, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read({f"qwen3moe.{name}": found for name, found in changes.items()})


def test_vocabulary_must_fit_the_embedding(read: Read) -> None:
    with pytest.raises(ModelError, match=r"2 tokens, but tensor 'token_embd\.weight' has 5 rows"):
        read({"tokenizer.ggml.tokens": ["a", "b"]})
    with pytest.raises(ModelError, match=r"has shape \(64,\), expected \(width, vocabulary\)"):
        read(tensors={"token_embd.weight": RawTensor(name="token_embd.weight", shape=(64,))})
    with pytest.raises(ModelError, match=r"tensor 'token_embd\.weight' is missing"):
        read(tensors={"token_embd.weight": None})


NOT_SUPPORTED: list[tuple[str, Any, Any]] = [
    # key, a value without effect, a value that would have one
    ("general.type", "model", "adapter"),
    ("qwen3moe.vocab_size", 5, 6),
    ("qwen3moe.expert_shared_count", 0, 1),
    ("qwen3moe.expert_gating_func", 1, 2),
    ("qwen3moe.expert_group_count", 1, 8),
    ("qwen3moe.attention.value_length", 32, 16),
    ("qwen3moe.attention.scale", Raw(F32, b"\xf3\x04\x35\x3e"), 0.5),
    ("qwen3moe.attention.sliding_window", 0, 4096),
    ("qwen3moe.attention.causal", True, False),
    ("qwen3moe.final_logit_softcapping", 0.0, 30.0),
    ("qwen3moe.rope.dimension_count", 32, 16),
    ("qwen3moe.rope.dimension_sections", None, [1, 2, 3]),
    ("qwen3moe.rope.scaling.type", "none", "longrope"),
    ("qwen3moe.rope.scaling.alpha", 1.0, 1000.0),
    ("qwen3moe.rope.scaling.yarn_attn_factor", 1.0, 1.2),
    ("qwen3moe.rope.scaling.yarn_ext_factor", -1.0, 0.5),
    ("qwen3moe.rope.scaling.yarn_log_multiplier", 0.0, 0.1),
]


@pytest.mark.parametrize(("key", "harmless", "harmful"), NOT_SUPPORTED, ids=[key for key, *_ in NOT_SUPPORTED])
def test_what_would_be_computed_wrongly_is_refused_by_name(read: Read, key: str, harmless: Any, harmful: Any) -> None:
    assert read({key: harmless}) == read()
    with pytest.raises(ModelError, match=rf"model\.gguf: '{key}' is .* which is not supported yet; expected"):
        read({key: harmful})


SCALINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    # keys behind rope, what they say
    ({"scaling.type": "none"}, {}),
    ({"scaling.factor": 4.0}, {"scaling": RopeScaling.LINEAR, "factor": 4.0}),
    ({"scale_linear": 0.0, "scaling.factor": 0.0, "scaling.original_context_length": 0}, {}),  # 0 is unset
    ({"scale_linear": 4.0}, {"scaling": RopeScaling.LINEAR, "factor": 4.0}),
    ({"scale_linear": 4.0, "scaling.factor": 4.0}, {"scaling": RopeScaling.LINEAR, "factor": 4.0}),
    ({"scaling.type": "linear", "scaling.factor": 4.0}, {"scaling": RopeScaling.LINEAR, "factor": 4.0}),
    ({"scaling.type": "linear", "scaling.yarn_ext_factor": 0.0}, {"scaling": RopeScaling.LINEAR}),
    ({"scaling.type": "yarn", "scaling.factor": 4}, {"scaling": RopeScaling.YARN, "factor": 4.0}),
    (
        {
            "scaling.type": "yarn",
            "scaling.factor": 4.0,
            "scaling.original_context_length": 32,
            "scaling.attn_factor": 0.5,
            "scaling.finetuned": True,
            "scaling.yarn_beta_fast": 16.0,
            "scaling.yarn_beta_slow": 2.0,
            "scaling.yarn_ext_factor": 1.0,
        },
        {
            "scaling": RopeScaling.YARN,
            "factor": 4.0,
            "original_context": 32,
            "attention_factor": 0.5,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
        },
    ),
]


@pytest.mark.parametrize(("keys", "expected"), SCALINGS)
def test_scaled_positions(read: Read, keys: dict[str, Any], expected: dict[str, Any]) -> None:
    found = read({f"qwen3moe.rope.{name}": value for name, value in keys.items()}).rotary
    assert found == Rotary(**{"base": 1e6, "original_context": 128, **expected})


@pytest.mark.parametrize(("found", "expected"), [(0.0, 1.0), (1.0, 1.0), (2.5, 2.5)])
def test_the_scale_of_the_experts_weights(read: Read, found: float, expected: float) -> None:
    assert read({"qwen3moe.expert_weights_scale": found}).weight_scale == expected


def test_the_experts_weights_may_stay_as_they_are(read: Read) -> None:
    assert not read({"qwen3moe.expert_weights_norm": False}).normalise_weights
    with pytest.raises(ModelError, match=r"'qwen3moe\.expert_weights_norm' is int 0, expected a bool"):
        read({"qwen3moe.expert_weights_norm": 0})


def test_dense_first_layers(read: Read) -> None:
    geometry = read({"qwen3moe.leading_dense_block_count": 1, "qwen3moe.feed_forward_length": 160})
    assert (geometry.dense_layers, geometry.dense_width, geometry.expert_layers) == (1, 160, range(1, 2))
    assert geometry.handshake()["dense_layers"] == 1


def test_an_array_where_a_number_is_expected_is_refused(read: Read) -> None:
    with pytest.raises(ModelError, match=r"'qwen3moe\.attention\.sliding_window' is an array, .* expected 0"):
        read({"qwen3moe.attention.sliding_window": [0, 0]})
