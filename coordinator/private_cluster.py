"""Clusters for one answer: at an endpoint that nobody else has, so nobody joins what is about to end."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from coordinator.config import ClusterConfig, CoordinatorConfig, WorkerGroup
from protocol.errors import ConfigError


def private_endpoint() -> str:
    """A new abstract ipc endpoint: no file is left behind, and no other cluster has it.

    That is no secret: any user of the machine can read it in /proc/net/unix, dial it, and be greeted as a client.
    """
    return f"ipc://@expertmesh-{secrets.token_hex(8)}"


def kept_private(config: ClusterConfig) -> ClusterConfig:
    """The same cluster at an endpoint of its own: for one answer, so that nobody joins what is about to end.

    ConfigError if some of it runs on other machines, which cannot dial such an endpoint.
    """
    if remote := config.remote:
        found = ", ".join(f"{part.name} on {part.host}" for part in remote)
        raise ConfigError(
            f"nothing listens at {config.coordinator.listen}, and a cluster for one answer has no processes on other "
            f"machines, found {found}: start it with `expertmesh up` first"
        )
    workers = tuple(replace(group, give="") for group in config.workers)  # which has an endpoint of its own
    return replace(config, coordinator=replace(config.coordinator, listen=private_endpoint()), workers=workers)


def private_cluster(model: Path, *, workers: int, threads: int, **chosen: Any) -> ClusterConfig:
    """A cluster for one answer: the coordinator has all `threads`; the workers compute in between and share them.

    `chosen` are further fields of CoordinatorConfig.
    """
    coordinator = CoordinatorConfig(listen=private_endpoint(), threads=threads, **chosen)
    group = WorkerGroup(name="worker", count=workers, threads=max(1, threads // max(1, workers)))
    return ClusterConfig(model=model, coordinator=coordinator, workers=(group,))
