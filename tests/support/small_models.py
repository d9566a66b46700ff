"""Small models of every kind of weight that the kernels run, and a text to read with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from moe_models import write_model

_COMMON: dict[str, Any] = {
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 32,
    "vocab": 300,
    "ctx": 256,
    "experts": 6,
    "experts_used": 3,
}
_F32 = {"embd": 96, "ff_exp": 40, "heads": 6, "kv_heads": 1, "exp_type": "F32", "dense_type": "F32"}
_MIX = {"embd": 64, "ff_exp": 64, "gate_type": "F16", "down_type": "BF16", "dense_type": "BF16", "tied": True}
_Q8_0 = {"embd": 96, "ff_exp": 32, "exp_type": "Q8_0", "dense_type": "Q8_0"}
_K = {"embd": 256, "ff_exp": 256, "heads": 8, "exp_type": "Q4_K", "down_type": "Q6_K", "dense_type": "Q4_K"}
_SHORT = {
    "embd": 288, "ff_exp": 96, "heads": 6, "experts": 4, "experts_used": 2,
    "gate_type": "Q5_0,Q4_1", "up_type": "Q4_0,Q5_1", "down_type": "Q5_1,Q4_0",
    "dense_type": "Q4_1,Q5_0", "embd_type": "Q4_0", "output_type": "Q5_1",
}  # fmt: skip
"""Every row ends in a block shorter than 256 columns."""
_MIXED = {
    "embd": 256, "ff_exp": 160, "heads": 8, "experts": 4, "experts_used": 2, "layers": 4,
    "gate_type": "Q4_0,F16,Q5_0,Q6_K", "up_type": "Q5_K,Q4_1,Q5_0,Q4_K", "down_type": "Q5_1,Q8_0,BF16,Q4_1",
    "dense_type": "Q4_1,Q5_0,Q5_K,F32", "embd_type": "Q5_K", "output_type": "Q5_0",
}  # fmt: skip
"""Types differ within a layer and between layers: floats among them as a gate, as a down and as attention."""
_DENSE = _Q8_0 | {"layers": 3, "dense_layers": 1, "ff_dense": 64, "raw_weights": True, "weight_scale": 2.5}
_YARN = {"rope_scaling": "yarn", "rope_factor": 4.0, "rope_original": 32, "rope_base": 1e4}
_SMALLEST = _F32 | {"layers": 1, "heads": 2, "kv_heads": 2, "head_dim": 16, "experts_used": 1}

MODELS: dict[str, dict[str, Any]] = {
    "f32": _COMMON | _F32,
    "float-mix": _COMMON | _MIX,
    "q8_0": _COMMON | _Q8_0,
    "k": _COMMON | _K | {"output_type": "Q6_K"},
    "short": _COMMON | _SHORT,
    "mixed": _COMMON | _MIXED,
    "dense-first": _COMMON | _DENSE | _YARN,
    "smallest": _COMMON | _SMALLEST | {"rope_factor": 2.0},
}
"""Settings of `moe_models.write_model`."""

TEXT = np.random.default_rng(5).integers(0, 300, 150).tolist()
"""Longer than two of the attention's blocks of 64 positions."""


def small_model(name: str, folder: Path) -> Path:
    """The file of one of MODELS in `folder`, written unless it is there already."""
    path = folder / f"{name}.gguf"
    return path if path.exists() else write_model(path, **MODELS[name])
