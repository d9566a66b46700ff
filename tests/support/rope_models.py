"""Models with scaled rotary positions, and what llama.cpp makes of them.

    python tests/support/rope_models.py tests/data/rope-logits.npz

writes the second, for which it needs `llama_cpp` of llama-cpp-python; version 0.3.36, one thread, keys and values in
F32, wrote the file that is there.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from moe_models import write_model
from numpy.typing import NDArray

_COMMON: dict[str, Any] = {
    "layers": 2,
    "embd": 64,
    "head_dim": 64,
    "experts": 6,
    "experts_used": 2,
    "ff_exp": 32,
    "vocab": 280,
    "ctx": 256,
    "rope_base": 1e4,
    "exp_type": "F32",
    "dense_type": "F32",
}
"""Rows and frequencies so few that scaling shows: pairs that turn often, seldom, and a ramp between them."""

ROPE_MODELS: dict[str, dict[str, Any]] = {
    "plain": _COMMON,
    "linear": _COMMON | {"rope_scaling": "linear", "rope_factor": 4.0},
    "linear-untyped": _COMMON | {"rope_factor": 2.5},
    "yarn": _COMMON | {"rope_scaling": "yarn", "rope_factor": 4.0, "rope_original": 64},
    "yarn-no-original": _COMMON | {"rope_scaling": "yarn", "rope_factor": 3.0},
    "yarn-attention": _COMMON
    | {"rope_scaling": "yarn", "rope_factor": 8.0, "rope_original": 32, "rope_attn_factor": 0.75},
}
"""Settings of `moe_models.write_model`. One has no original context: it is the model's."""

TOKENS: list[int] = np.random.default_rng(11).integers(0, 280, 200).tolist()
"""Read at positions 0 to 199."""
POSITIONS = [*range(0, 200, 8), 199]
"""Whose logits are kept: within the original context and beyond it."""


def rope_model(name: str, folder: Path) -> Path:
    """The file of one of ROPE_MODELS in `folder`, written unless it is there already."""
    path = folder / f"rope-{name}.gguf"
    return path if path.exists() else write_model(path, **ROPE_MODELS[name])


def llama_logits(path: Path) -> NDArray[np.float32]:
    """llama.cpp's logits (len(POSITIONS), vocabulary)."""
    llama_cpp = importlib.import_module("llama_cpp")
    settings = {"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1, "type_k": 0, "type_v": 0, "flash_attn": False}
    model = llama_cpp.Llama(str(path), logits_all=True, verbose=False, **settings)
    model.eval(TOKENS)
    logits: NDArray[np.float32] = np.array(model.scores[POSITIONS], np.float32)
    return logits


def main(out: Path) -> None:
    """Write llama.cpp's logits of every model."""
    with tempfile.TemporaryDirectory() as folder:
        logits: dict[str, Any] = {name: llama_logits(rope_model(name, Path(folder))) for name in ROPE_MODELS}
        np.savez_compressed(out, **logits)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
