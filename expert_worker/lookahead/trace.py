"""What every layer of every step used, in a file: written by whoever has routed, read by the oracle predictor."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from protocol.errors import ConfigError
from protocol.messages import I32

_ARRAYS = ("step", "layer", "count", "experts")


def write_trace(path: Path, used: Mapping[tuple[int, int], I32]) -> None:
    """Experts by (step, layer), ascending: NumPy's npz with the integer arrays step, layer, count, experts."""
    keys = sorted(used)
    np.savez(
        path,
        step=np.array([step for step, _ in keys], np.int64),
        layer=np.array([layer for _, layer in keys], np.int32),
        count=np.array([len(used[key]) for key in keys], np.int32),
        experts=np.concatenate([used[key] for key in keys] or [np.empty(0, np.int32)]).astype(np.int32),
    )


def read_trace(path: Path) -> dict[tuple[int, int], I32]:
    """What `write_trace` wrote. ConfigError if there is no such file, or it is none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            step, layer, count, experts = (file[name] for name in _ARRAYS)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is none of ours"
        raise ConfigError(f"{path}: a trace of used experts is expected: {reason}") from None
    arrays = (step, layer, count, experts)
    sound = all(array.ndim == 1 and array.dtype.kind == "i" for array in arrays)
    if not sound or not len(step) == len(layer) == len(count) or (count < 0).any() or count.sum() != len(experts):
        raise ConfigError(f"{path}: a trace of used experts is expected: its arrays do not fit each other")
    parts = np.split(experts.astype(np.int32), np.cumsum(count[:-1])) if len(count) else []
    return {
        (int(of_step), int(of_layer)): np.unique(part[part >= 0])
        for of_step, of_layer, part in zip(step, layer, parts, strict=True)
    }
