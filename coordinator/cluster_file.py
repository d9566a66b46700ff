"""The TOML file that states a cluster; everything wrong with it is reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator.config import (
    COORDINATOR,
    DEFAULT_LISTEN,
    DEVICES,
    LOOKAHEAD,
    MAX_ALL_WORKERS,
    MAX_DEVICE,
    MAX_PEERS,
    MAX_THREADS,
    MAX_WORKERS,
    OF_A_CACHE,
    PREDICTORS,
    WEIGHTS,
    ClusterConfig,
    CoordinatorConfig,
    LookaheadConfig,
    PeerConfig,
    WorkerGroup,
    is_device,
    work_endpoint,
)
from coordinator.drafts import MAX_DRAFTS
from coordinator.halves import When
from coordinator.toml_reader import (
    Read,
    Reader,
    flag,
    folder_beside,
    later,
    made_beside,
    model_beside,
    one_of,
    only,
    shown,
    text,
    whole,
)
from protocol.bulk import MAX_MB_S
from protocol.endpoints import check_endpoint
from protocol.expert_sources import BUDGETED_SOURCES, SOURCES
from protocol.gib import MAX_GIB


def read_config(path: Path) -> ClusterConfig:
    """The cluster that the TOML file at `path` states; ConfigError with one line for each thing that is wrong."""
    reader = Reader(path)
    model_file = model_beside(path.parent)
    sections = {"model": True, "coordinator": False, "workers": False, "peers": False, "lookahead": False}
    reader.sections(sections, refused=LATER_SECTIONS)
    model = reader.table("model", {"path": model_file}, required=("path",))
    coordinator = reader.table("coordinator", {**COORDINATOR_KEYS, "profile": made_beside(path.parent)})
    _report_memory_of_no_device(coordinator, reader)
    worker_keys = {**WORKER_KEYS, "model_path": model_file, "cache": folder_beside(path.parent)}
    groups = reader.tables("workers", worker_keys, required=("name",))
    peers = reader.tables("peers", {**PEER_KEYS, "model_path": model_file}, required=("name",))
    lookahead = reader.table("lookahead", LOOKAHEAD_KEYS)
    _report_shared_names(groups, reader)
    _report_memory_of_no_use(groups, reader)
    _report_caches_of_no_use(groups, reader)
    _report_taken_names(peers, groups, reader)
    _report_too_many(groups, peers, reader)
    reader.finish()
    return ClusterConfig(
        model=model["path"],
        coordinator=CoordinatorConfig(**_used(coordinator)),
        workers=tuple(WorkerGroup(**_used(group)) for group in groups),
        peers=tuple(PeerConfig(**_used(peer)) for peer in peers),
        lookahead=LookaheadConfig(**lookahead),
    )


def _report_memory_of_no_device(coordinator: dict[str, Any], reader: Reader) -> None:
    if "vram_gib" in coordinator and coordinator.get("device", "cpu") == "cpu":
        reader.problem("coordinator", 0, "vram_gib", 'this is memory of a GPU: it needs device = "cuda:0", or another')


def _report_memory_of_no_use(groups: list[dict[str, Any]], reader: Reader) -> None:
    for index, group in enumerate(groups):
        source = group.get("source", "auto")
        if group.get("ram_gib") is not None and source not in BUDGETED_SOURCES:
            reason = (
                f"of no use with source = {shown(source)}, which takes what it needs; leave it out, or take {BUDGETED}"
            )
            reader.problem("workers", index, "ram_gib", reason)


def _report_caches_of_no_use(groups: list[dict[str, Any]], reader: Reader) -> None:
    for index, group in enumerate(groups):
        if "cache" not in group:
            if "give" in group:
                reader.problem("workers", index, "give", "what is in their cache is given there, so it needs cache")
            continue
        if "model_path" in group:
            reader.problem(
                "workers", index, "cache", "weights are fetched there, and model_path names a model: take one"
            )
        elif group.get("source") == "shared":
            reader.problem("workers", index, "cache", 'of no use with source = "shared", which needs all experts')


def _report_shared_names(groups: list[dict[str, Any]], reader: Reader) -> None:
    seen: set[str] = set()
    for index, group in enumerate(groups):
        if group.get("name") in seen:
            reader.problem("workers", index, "name", f"another group is called {group['name']} too")
        seen.add(group.get("name", ""))


def _report_taken_names(peers: list[dict[str, Any]], groups: list[dict[str, Any]], reader: Reader) -> None:
    taken = {f"{group.get('name')}-{index}": "a worker" for group in groups for index in range(group.get("count", 1))}
    taken |= {COORDINATOR: "the coordinator", LOOKAHEAD: "the lookahead process", WEIGHTS: "the weights process"}
    taken |= {f"{group.get('name')}{OF_A_CACHE}": "what gives from a cache" for group in groups if "give" in group}
    for index, peer in enumerate(peers):
        name = peer.get("name", "")
        if name in taken:
            reader.problem("peers", index, "name", f"{taken[name]} is called {name} too")
        elif name:
            taken[name] = "another peer"


def _report_too_many(groups: list[dict[str, Any]], peers: list[dict[str, Any]], reader: Reader) -> None:
    if len(peers) > MAX_PEERS:
        reader.problem("peers", MAX_PEERS, None, f"{len(peers)} peers found, {MAX_PEERS} at most are expected")
    total = min(len(peers), MAX_PEERS)
    for index, group in enumerate(groups):
        total += group.get("count", 1)
        if total > MAX_ALL_WORKERS:
            reason = f"{total} workers and peers in all up to here, {MAX_ALL_WORKERS} at most are expected"
            reader.problem("workers", index, "count", reason)
            return


def _used(values: dict[str, Any]) -> dict[str, Any]:
    """Without the keys that may have one value only, and so tell nothing."""
    return {key: value for key, value in values.items() if key not in ONE_VALUE_KEYS}


def _endpoint(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"an endpoint is expected, such as {DEFAULT_LISTEN}, found {shown(value)}")
    check_endpoint(value, dial=True)  # workers must be able to dial it, so a port must be named
    return value


def _local_endpoint(value: Any) -> str:
    work_endpoint(_endpoint(value))
    return str(value)


def _device(value: Any) -> str:
    if not isinstance(value, str) or not is_device(value):
        raise ValueError(f"{DEVICES} is expected, found {shown(value)}")
    return value


def _when(value: Any) -> When:
    if type(value) is bool:
        return "on" if value else "off"
    if value != "auto":
        raise ValueError(f'"auto", true or false is expected, found {shown(value)}')
    return "auto"


def _gib(value: Any) -> float | None:
    if value == "auto":
        return None
    if type(value) not in (int, float) or not 0 <= value <= MAX_GIB:
        raise ValueError(f'"auto" or a number from 0 to {MAX_GIB} is expected, found {shown(value)}')
    return float(value)


def _rate(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value <= MAX_MB_S:
        raise ValueError(f"a number above 0 and at most {MAX_MB_S:.0f} is expected, found {shown(value)}")
    return float(value)


COORDINATOR_KEYS: dict[str, Read] = {
    "listen": _local_endpoint,
    "threads": whole(1, MAX_THREADS),
    "kv": one_of("f16", "f32"),
    "chunk": whole(1, 512),
    "drafts": whole(0, MAX_DRAFTS),
    "halves": _when,
    "device": _device,
    "vram_gib": _gib,
    "local_experts": only(True),
    "bulk": flag,
    "bulk_mb_s": _rate,
    "work_listen": later,
    "bulk_listen": later,
    "layer_input_listen": later,
}

WORKER_KEYS: dict[str, Read] = {
    "name": text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", "a name of letters, digits, dots, dashes and underscores"),
    "count": whole(0, MAX_WORKERS),
    "threads": whole(1, MAX_THREADS),
    "host": only("local"),
    "source": one_of(*SOURCES),
    "ram_gib": _gib,
    "headroom_gib": _gib,
    "give": _endpoint,
    "command": later,
}

PEER_KEYS: dict[str, Read] = {
    "name": WORKER_KEYS["name"],
    "device": whole(0, MAX_DEVICE),
    "mode": only("static"),
    "vram_gib": _gib,
    "host": only("local"),
    "command": later,
}

ONE_VALUE_KEYS = frozenset({"local_experts", "host", "mode"})

LOOKAHEAD_KEYS: dict[str, Read] = {
    "enabled": _when,
    "predictor": one_of(*PREDICTORS),
}

BUDGETED = " or ".join(map(shown, BUDGETED_SOURCES))

LATER_SECTIONS = ("placement",)
