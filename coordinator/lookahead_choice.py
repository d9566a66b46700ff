"""Whether a cluster's workers on this machine get a lookahead process beside them, and why."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coordinator.config import ClusterConfig
from protocol.gib import GIB
from protocol.host_memory import host_memory
from protocol.shard_name import ShardName


@dataclass(frozen=True, slots=True, kw_only=True)
class LookaheadChoice:
    """A decision, and its reason for people."""

    on: bool
    reason: str

    def __str__(self) -> str:
        return f"lookahead is {'on' if self.on else 'off'}: {self.reason}"


def choose_lookahead(config: ClusterConfig, *, model_bytes: int, available_bytes: int) -> LookaheadChoice:
    """Pure. `model_bytes` of the largest model that workers compute from, `available_bytes` of memory for it."""
    if not any(group.count for group in config.workers if group.host is None):
        return LookaheadChoice(on=False, reason="no workers here compute from files")
    if config.lookahead.enabled != "auto":
        return LookaheadChoice(on=config.lookahead.enabled == "on", reason="as configured")
    fits = model_bytes <= available_bytes
    sizes = f"{model_bytes / GIB:.3g} GiB of files", f"{available_bytes / GIB:.3g} GiB of memory that can be had"
    return LookaheadChoice(on=not fits, reason=f"{sizes[0]} {'fit' if fits else 'do not fit'} in {sizes[1]}")


def lookahead_here(config: ClusterConfig) -> LookaheadChoice:
    """For this machine as it is now."""
    models = {group.model_path or config.model for group in config.workers if group.count and group.host is None}
    largest = max(map(_bytes_of, models), default=0)
    return choose_lookahead(config, model_bytes=largest, available_bytes=host_memory().available)


def _bytes_of(model: Path) -> int:
    """Of all files of a model; what is not there is told by whoever opens it."""
    size = 0
    with suppress(OSError):
        for file in _files_of(model):
            size += file.stat().st_size
    return size


def _files_of(model: Path) -> Iterable[Path]:
    if model.is_dir():
        return model.glob("*.gguf")
    shard = ShardName.of(model)
    return [model] if shard is None else shard.all()
