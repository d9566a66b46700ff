"""A cluster with a bit of everything that supervisors are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from coordinator.config import ClusterConfig, CoordinatorConfig, LookaheadConfig, PeerConfig, WorkerGroup

LISTEN = "tcp://127.0.0.1:7600"
PYTHON = "/opt/there/bin/python"


KEYS = Path("/keys")
CACHE = Path("/var/cache/expertmesh")


def full_cluster(keys: Path | None = None, **coordinator: Any) -> ClusterConfig:
    """A coordinator with four threads, two kinds of workers, a peer and a lookahead process."""
    chosen: dict[str, Any] = {"listen": LISTEN, "threads": 4} | coordinator
    return ClusterConfig(
        model=Path("/data/a model.gguf"),
        coordinator=CoordinatorConfig(**chosen),
        workers=(
            WorkerGroup(name="box", count=2, threads=2),
            WorkerGroup(name="Far_1", count=1, threads=3, model_path=Path("/copy/m.gguf"), source="copies", ram_gib=2),
            WorkerGroup(name="none", count=0),
        ),
        peers=(PeerConfig(name="gpu", device=3),),
        lookahead=LookaheadConfig(enabled="on"),
        keys=keys,
    )


def fetching_cluster(keys: Path | None = None, *, give: str = "", **coordinator: Any) -> ClusterConfig:
    """The same, and two workers that fetch their weights; what is in their cache is given at `give`, if anywhere."""
    full = full_cluster(keys, **coordinator)
    attic = WorkerGroup(name="attic", count=2, threads=1, cache=CACHE, give=give)
    return replace(full, workers=(*full.workers, attic))
