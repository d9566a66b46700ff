"""Models of many shapes: the right numbers, and the same bits however they are computed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from local_engine import local_engine, read
from moe_models import write_model
from reference_model import Forward, ReferenceModel

import native
from protocol.messages import F32

TEXT = np.random.default_rng(6).integers(0, 273, 80).tolist()
"""Longer than one of the attention's blocks of 64 positions."""
FEW = {"layers": 2, "embd": 64, "experts": 5, "experts_used": 2, "ff_exp": 32, "vocab": 273, "ctx": 128}
FLOATS = {"exp_type": "F32", "dense_type": "F32"}

SHAPES: dict[str, dict[str, Any]] = {
    "kv-1": {"heads": 6, "kv_heads": 1, "head_dim": 32},
    "kv-all": {"heads": 3, "kv_heads": 3, "head_dim": 48},
    "one-expert": {"experts_used": 1},
    "all-experts": {"experts_used": 5},
    "one-layer": {"layers": 1},
    "dense": {"layers": 3, "dense_layers": 2, "ff_dense": 96},
    "raw-weights": {"raw_weights": True},
    "scaled-weights": {"weight_scale": 2.5},
    "raw-scaled-weights": {"raw_weights": True, "weight_scale": 0.75},
    "many-columns": {"embd": 352, "ff_exp": 96},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(autouse=True)
def best_isa() -> Iterator[None]:
    before = native.isa()
    yield
    native.use_isa(before)


def check(path: Path, allowed: float) -> None:
    """Near float64, and the same bits for chunks of any size, threads and instruction sets."""
    exact = ReferenceModel(path).forward(TEXT)
    with local_engine(path) as engine:
        whole = read(engine, TEXT)
    assert distance(whole, exact) <= allowed
    for isa in native.available_isas():
        native.use_isa(isa)
        for threads, chunk in ((1, 1), (2, 7)):
            with local_engine(path, threads=threads) as engine:
                assert read(engine, TEXT, chunk).tobytes() == whole.tobytes(), (isa, threads, chunk)


def distance(logits: F32, exact: Forward) -> float:
    """The median of the positions' relative distances."""
    apart = np.linalg.norm(logits - exact.logits, axis=1) / np.linalg.norm(exact.logits, axis=1)
    return float(np.median(apart))


@pytest.mark.parametrize("types", [FLOATS, {"exp_type": "Q8_0", "dense_type": "Q8_0"}], ids=["f32", "q8_0"])
@pytest.mark.parametrize("head_dim", [16, 32, 40, 64, 80, 96, 128, 192, 256])
def test_heads_of_any_size(folder: Path, head_dim: int, types: dict[str, Any]) -> None:
    """Heads times their size is not the width."""
    heads = {"heads": 4, "kv_heads": 2, "head_dim": head_dim}
    path = write_model(folder / "model.gguf", **{**FEW, **heads, **types})
    check(path, 1e-6 if types is FLOATS else 0.03)


@pytest.mark.parametrize("name", SHAPES)
def test_other_shapes(folder: Path, name: str) -> None:
    check(write_model(folder / "model.gguf", **{**FEW, **FLOATS, **SHAPES[name]}), 1e-6)


@st.composite
def geometries(draw: st.DrawFn) -> dict[str, Any]:
    """Settings of `write_model` for small models of every shape."""
    kv_heads, experts, layers = draw(st.integers(1, 3)), draw(st.integers(1, 7)), draw(st.integers(1, 3))
    dense_layers = draw(st.integers(0, layers - 1))
    types = ["F32", "F16", "BF16"]
    return {
        "layers": layers,
        "dense_layers": dense_layers,
        "ff_dense": 8 * draw(st.integers(1, 8)) if dense_layers else 0,
        "embd": 8 * draw(st.integers(2, 12)),
        "heads": kv_heads * draw(st.integers(1, 3)),
        "kv_heads": kv_heads,
        "head_dim": 2 * draw(st.integers(1, 40)),
        "experts": experts,
        "experts_used": draw(st.integers(1, experts)),
        "ff_exp": 8 * draw(st.integers(1, 8)),
        "vocab": draw(st.integers(273, 290)),
        "ctx": draw(st.integers(len(TEXT), 400)),
        "rope_base": draw(st.sampled_from([2.0, 1e4, 1e6])),
        "rope_scaling": draw(st.sampled_from(["", "linear", "yarn"])),
        "rope_factor": draw(st.sampled_from([0.0, 1.0, 1.5, 4.0, 40.0])),
        "rope_original": draw(st.sampled_from([0, 1, 16, 64, 4096])),
        "rope_attn_factor": draw(st.sampled_from([0.0, 0.5, 1.25])),
        "beta_fast": draw(st.sampled_from([0.0, 8.0, 100.0])),
        "beta_slow": draw(st.sampled_from([0.0, 0.5, 4.0])),
        "raw_weights": draw(st.booleans()),
        "weight_scale": draw(st.sampled_from([0.0, 0.3, 2.5])),
        "exp_type": draw(st.sampled_from(types)),
        "down_type": draw(st.sampled_from(["", *types])),
        "dense_type": draw(st.sampled_from(types)),
        "tied": draw(st.booleans()),
        "seed": draw(st.integers(0, 1000)),
    }


@settings(max_examples=40)
@given(geometries(), st.integers(1, len(TEXT)))
def test_any_shape_is_near_float64(geometry: dict[str, Any], chunk: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_model(Path(folder) / "model.gguf", **geometry)
        exact = ReferenceModel(path).forward(TEXT)
        assume(exact.margins.min() > 1e-4)  # else rounding may choose another expert
        with local_engine(path) as engine:
            whole, parts = read(engine, TEXT), read(engine, TEXT, chunk)
    assert distance(whole, exact) <= 2e-6
    assert parts.tobytes() == whole.tobytes()
