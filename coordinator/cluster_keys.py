"""The keys of each table of a cluster file, and what each takes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from coordinator.config import (
    DEFAULT_LISTEN,
    DEVICES,
    MAX_DEVICE,
    MAX_ORPHAN_S,
    MAX_REPLICAS,
    MAX_THREADS,
    MAX_WORKERS,
    PLACED_BY,
    PREDICTORS,
    is_device,
    work_endpoint,
)
from coordinator.drafts import MAX_DRAFTS
from coordinator.halves import When
from coordinator.hosts import LOCAL, Host
from coordinator.toml_reader import KeysOf
from coordinator.toml_values import (
    Read,
    file_beside,
    folder_beside,
    keys_beside,
    later,
    made_beside,
    model_beside,
    number,
    one_of,
    only,
    shown,
    text,
    whole,
    yes_or_no,
)
from protocol.bulk import MAX_MB_S
from protocol.endpoints import check_endpoint, check_named
from protocol.expert_sources import SOURCES
from protocol.gib import MAX_GIB


def _local_endpoint(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"an endpoint is expected, such as {DEFAULT_LISTEN}, found {shown(value)}")
    check_endpoint(value, keyed=True)  # whether there are keys is told by cluster_conflicts.py
    check_endpoint(value, dial=True, keyed=True)  # workers must be able to dial it, so a port must be named
    work_endpoint(value)
    return value


def _own_endpoint(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"an endpoint is expected, such as {DEFAULT_LISTEN}, found {shown(value)}")
    return check_named(value, keyed=True)  # whether there are keys is told by cluster_conflicts.py


def _rate(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value <= MAX_MB_S:
        raise ValueError(f"a number above 0 and at most {MAX_MB_S:.0f} is expected, found {shown(value)}")
    return float(value)


def _host(value: Any) -> Host | None:
    if value == LOCAL:
        return None
    try:
        return Host.of(value if isinstance(value, str) else "")
    except ValueError as error:
        raise ValueError(f"{error}, found {shown(value)}") from None


def _command(value: Any) -> tuple[str, ...]:
    try:
        words = shlex.split(value) if isinstance(value, str) and "\0" not in value else []
    except ValueError:  # a quotation mark is missing
        words = []
    if not words:
        expected = "what `expertmesh` is there, as a shell would have it,"
        raise ValueError(f"{expected} is expected, found {shown(value)}")
    return tuple(words)


def _no_command(value: Any) -> Any:
    raise ValueError(f"of use only with a host such as {shown('ssh://me@garage')}")


def _path_there(value: Any) -> Path:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise ValueError(f"the whole path of a model on that machine is expected, found {shown(value)}")
    return Path(value)


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


ADDRESS = r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]"
"""Of this machine, for others; of version 6 in brackets."""

COORDINATOR_KEYS: dict[str, Read] = {
    "listen": _local_endpoint,
    "threads": whole(1, MAX_THREADS),
    "kv": one_of("f16", "f32"),
    "chunk": whole(1, 512),
    "drafts": whole(0, MAX_DRAFTS),
    "halves": _when,
    "device": _device,
    "vram_gib": _gib,
    "local_experts": yes_or_no,
    "orphan_s": whole(1, MAX_ORPHAN_S),
    "audit": number(0, 1),
    "bulk": yes_or_no,
    "bulk_mb_s": _rate,
    "work_listen": later,
    "bulk_listen": later,
    "layer_input_listen": later,
}

WORKER_KEYS: dict[str, Read] = {
    "name": text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", "a name of letters, digits, dots, dashes and underscores"),
    "count": whole(0, MAX_WORKERS),
    "threads": whole(1, MAX_THREADS),
    "host": _host,
    "source": one_of(*SOURCES),
    "ram_gib": _gib,
    "headroom_gib": _gib,
}

PEER_KEYS: dict[str, Read] = {
    "name": WORKER_KEYS["name"],
    "device": whole(0, MAX_DEVICE),
    "mode": only("static"),
    "vram_gib": _gib,
    "host": _host,
}

LOOKAHEAD_KEYS: dict[str, Read] = {
    "enabled": _when,
    "predictor": one_of(*PREDICTORS),
}

PLACEMENT_KEYS: dict[str, Read] = {"replicas": number(1, MAX_REPLICAS), "by": one_of(*PLACED_BY)}


def coordinator_keys(folder: Path) -> dict[str, Read]:
    """The keys of [coordinator] in a file in `folder`, where relative paths start."""
    return {**COORDINATOR_KEYS, "profile": made_beside(folder)}


def worker_keys(folder: Path) -> KeysOf:
    """The keys of a table [[workers]]."""
    return _placed(WORKER_KEYS, folder, cache=True)


def peer_keys(folder: Path) -> KeysOf:
    """The keys of a table [[peers]]."""
    return _placed(PEER_KEYS, folder, cache=False)


def launch_keys(folder: Path) -> dict[str, Read]:
    """The keys of [launch]."""
    address = text(ADDRESS, "a host's name or address, without a port,")
    return {"logs": folder_beside(folder), "ssh_config": file_beside(folder), "address": address}


def _placed(keys: dict[str, Read], folder: Path, *, cache: bool) -> KeysOf:
    """The keys of a table that may have a `host`: a path elsewhere cannot be looked at from here."""
    here = {"model_path": model_beside(folder), "command": _no_command, "keys_path": keys_beside(folder)}
    there = {"model_path": _path_there, "command": _command, "keys_path": _path_there}
    if cache:
        here |= {"cache": folder_beside(folder), "give": _own_endpoint}
        there |= {"cache": _path_there, "give": _own_endpoint}
    return lambda found: {**keys, **(here if found.get("host", LOCAL) == LOCAL else there)}
