"""Where the model that comes with the program lies, in the source tree and when installed."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from protocol.errors import ModelError

DEMO_MODEL = "demo-moe-q4_k_m.gguf"


def demo_model() -> Path:
    """The demo model's file. ModelError if this installation lacks it."""
    path = Path(str(files("configs").joinpath(DEMO_MODEL)))
    if not path.is_file():
        raise ModelError(f"the demo model is not there: {path}; name a model with --model")
    return path
