"""The TOML file that states a cluster; everything wrong with it is reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator.cluster_conflicts import report_conflicts
from coordinator.cluster_keys import (
    LOOKAHEAD_KEYS,
    PLACEMENT_KEYS,
    coordinator_keys,
    launch_keys,
    peer_keys,
    worker_keys,
)
from coordinator.config import (
    ClusterConfig,
    CoordinatorConfig,
    LaunchConfig,
    LookaheadConfig,
    PeerConfig,
    PlacementConfig,
    WorkerGroup,
)
from coordinator.toml_reader import Reader
from coordinator.toml_values import keys_beside, model_beside

SECTIONS = ("model", "coordinator", "workers", "peers", "lookahead", "placement", "launch", "keys")
ONE_VALUE_KEYS = frozenset({"mode"})
"""Keys that may have one value only, and so tell nothing."""


def read_config(path: Path) -> ClusterConfig:
    """The cluster that the TOML file at `path` states; ConfigError with one line for each thing that is wrong."""
    reader, folder = Reader(path), path.parent
    reader.sections({section: section == "model" for section in SECTIONS})
    model = reader.table("model", {"path": model_beside(folder)}, required=("path",))
    coordinator = reader.table("coordinator", coordinator_keys(folder))
    groups = reader.tables("workers", worker_keys(folder), required=("name",))
    peers = reader.tables("peers", peer_keys(folder), required=("name",))
    lookahead = reader.table("lookahead", LOOKAHEAD_KEYS)
    placement = reader.table("placement", PLACEMENT_KEYS)
    launch = reader.table("launch", launch_keys(folder))
    keys = reader.table("keys", {"path": keys_beside(folder, to_listen=True)}, required=("path",))
    report_conflicts(coordinator, groups, peers, reader)
    reader.finish()
    return ClusterConfig(
        model=model["path"],
        coordinator=CoordinatorConfig(**coordinator),
        workers=tuple(WorkerGroup(**group) for group in groups),
        peers=tuple(PeerConfig(**_used(peer)) for peer in peers),
        lookahead=LookaheadConfig(**lookahead),
        placement=PlacementConfig(**placement),
        launch=LaunchConfig(**launch),
        keys=keys.get("path"),
    )


def _used(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in ONE_VALUE_KEYS}
