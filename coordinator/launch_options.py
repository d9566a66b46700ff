"""The options of each kind of process, by the cluster that it is part of."""

from __future__ import annotations

from pathlib import Path

from coordinator.config import LOOKAHEAD, ClusterConfig, PeerConfig, WorkerGroup
from protocol.endpoints import check_endpoint
from protocol.neighbours import bulk_endpoint

PEERS_READY_S = 600
"""Time for peers to have read their experts: there may be a hundred GiB of them, on a slow disk."""
OPENING_S = 300
"""Time for a coordinator to open its GPU: kernels are compiled at their first use, dense weights copied. Meanwhile it
answers nobody."""


def coordinator_options(config: ClusterConfig) -> list[str]:
    """Of the coordinator."""
    chosen = config.coordinator
    options = ["--model", str(config.model), "--listen", chosen.listen, "--workers", str(_awaited(config))]
    options += ["--threads", str(chosen.threads), "--kv", chosen.kv]
    if config.placement.by != "measured":
        options += ["--placement", config.placement.by]
    if config.placement.replicas > 1:
        options += ["--replicas", f"{config.placement.replicas:g}"]
    if chosen.chunk is not None:
        options += ["--chunk", str(chosen.chunk)]
    if chosen.drafts is not None:
        options += ["--drafts", str(chosen.drafts)]
    if chosen.halves != "auto":
        options += ["--halves", chosen.halves]
    if chosen.device != "cpu":
        options += ["--device", chosen.device, "--vram-gib", _gib(chosen.vram_gib)]
    if not chosen.local_experts:
        options += ["--no-local-experts"]
    if chosen.profile is not None:
        options += ["--profile", str(chosen.profile)]
    if chosen.audit:
        options += ["--audit", f"{chosen.audit:.12g}"]
    if config.keys is not None:
        options += ["--keys", str(config.keys)]
    if config.peers:
        options += ["--ready-within", str(PEERS_READY_S)]
    return options


def worker_options(config: ClusterConfig, name: str, group: WorkerGroup) -> list[str]:
    """Of one worker of a group."""
    where = ("--model", group.model_path or config.model) if group.cache is None else ("--cache", group.cache)
    return [
        *_joining(config, name, *where, group.keys_path),
        *("--threads", str(group.threads), "--of", _of(config, group)),
        *_tiers(group),
    ]


def _of(config: ClusterConfig, group: WorkerGroup) -> str:
    """How many workers share its machine's memory, and where nobody else holds experts, that they hold all."""
    here = sum(other.count for other in config.workers if other.host == group.host)
    everybody = sum(other.count for other in config.workers)
    alone = here == everybody and not config.peers and config.coordinator.device == "cpu"
    return f"{here}/{here}" if alone else str(here)


def _tiers(group: WorkerGroup) -> list[str]:
    """What is said of where a worker's experts come from."""
    options = [] if group.source == "auto" else ["--source", group.source]
    if group.ram_gib is not None:
        options += ["--ram-gib", _gib(group.ram_gib)]
    if group.headroom_gib is not None:
        options += ["--headroom-gib", _gib(group.headroom_gib)]
    return options


def peer_options(config: ClusterConfig, peer: PeerConfig) -> list[str]:
    """Of a peer."""
    model = peer.model_path or config.model
    options = [*_joining(config, peer.name, "--model", model, peer.keys_path), "--device", f"cuda:{peer.device}"]
    return [*options, "--vram-gib", _gib(peer.vram_gib)]


def lookahead_options(config: ClusterConfig) -> list[str]:
    """Of the lookahead process."""
    return [*_joining(config, LOOKAHEAD, "--model", config.model), "--predictor", config.lookahead.predictor]


def weights_options(config: ClusterConfig) -> list[str]:
    """Of what gives the model's files, beside the coordinator."""
    options = ["--model", str(config.model), "--listen", bulk_endpoint(config.coordinator.listen)]
    options += [] if config.keys is None else ["--keys", str(config.keys)]
    return [*options, "--mb-s", f"{config.coordinator.bulk_mb_s:.12g}"]


def cache_options(config: ClusterConfig, group: WorkerGroup) -> list[str]:
    """Of what gives from the cache of a group."""
    keys = group.keys_path or config.keys
    connect = check_endpoint(config.coordinator.listen, dial=True, keyed=keys is not None)
    options = ["--cache", str(group.cache), "--connect", connect, "--listen", group.give]
    options += [] if keys is None else ["--keys", str(keys)]
    return [*options, "--mb-s", f"{config.coordinator.bulk_mb_s:.12g}"]


def _joining(config: ClusterConfig, name: str, option: str, path: Path, keys: Path | None = None) -> list[str]:
    """The options of whoever holds experts, or looks ahead; `keys` are its own, if it has some.

    `option` says what lies at `path`.
    """
    keys = keys or config.keys
    connect = check_endpoint(config.coordinator.listen, dial=True, keyed=keys is not None)
    options = ["--connect", connect, option, str(path), "--name", name]
    if keys is not None:
        options += ["--keys", str(keys)]
    orphan_s = config.coordinator.orphan_s or (0 if config.coordinator.device == "cpu" else OPENING_S)
    return [*options, "--orphan-s", str(orphan_s)] if orphan_s else options


def _gib(gib: float | None) -> str:
    return "auto" if gib is None else f"{gib:.12g}"


def _awaited(config: ClusterConfig) -> int:
    """Members without which the coordinator does not begin; workers that fetch their weights come when they can."""
    return sum(group.count for group in config.workers if group.cache is None) + len(config.peers)
