"""The TOML file that states a cluster; everything wrong with it is reported at once."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coordinator.config import (
    COORDINATOR,
    DEFAULT_LISTEN,
    DEVICES,
    LOOKAHEAD,
    MAX_ALL_WORKERS,
    MAX_DEVICE,
    MAX_ORPHAN_S,
    MAX_PEERS,
    MAX_REPLICAS,
    MAX_THREADS,
    MAX_WORKERS,
    OF_A_CACHE,
    PLACED_BY,
    PREDICTORS,
    WEIGHTS,
    ClusterConfig,
    CoordinatorConfig,
    LaunchConfig,
    LookaheadConfig,
    PeerConfig,
    PlacementConfig,
    WorkerGroup,
    inputs_endpoint,
    is_device,
    work_endpoint,
)
from coordinator.drafts import MAX_DRAFTS
from coordinator.halves import When
from coordinator.hosts import LOCAL, Host
from coordinator.on_ray.plan import RAY
from coordinator.process_logs import LAUNCHER
from coordinator.toml_reader import (
    KeysOf,
    Read,
    Reader,
    file_beside,
    folder_beside,
    keys_beside,
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
from protocol.endpoints import check_endpoint, check_named, is_local
from protocol.errors import ConfigError
from protocol.expert_sources import BUDGETED_SOURCES, SOURCES
from protocol.gib import MAX_GIB
from protocol.keys import giving_keys
from protocol.neighbours import bulk_endpoint


def read_config(path: Path) -> ClusterConfig:
    """The cluster that the TOML file at `path` states; ConfigError with one line for each thing that is wrong."""
    reader = Reader(path)
    model_file = model_beside(path.parent)
    optional = ("coordinator", "workers", "peers", "lookahead", "placement", "launch", "keys")
    sections = {"model": True} | dict.fromkeys(optional, False)
    reader.sections(sections)
    model = reader.table("model", {"path": model_file}, required=("path",))
    coordinator = reader.table("coordinator", {**COORDINATOR_KEYS, "profile": made_beside(path.parent)})
    _report_memory_of_no_device(coordinator, reader)
    keys_file = keys_beside(path.parent)
    cache = folder_beside(path.parent)
    groups = reader.tables("workers", _placed(WORKER_KEYS, model_file, keys_file, cache), required=("name",))
    peers = reader.tables("peers", _placed(PEER_KEYS, model_file, keys_file), required=("name",))
    lookahead = reader.table("lookahead", LOOKAHEAD_KEYS)
    placement = reader.table("placement", PLACEMENT_KEYS)
    launch = reader.table("launch", _launch_keys(path.parent))
    keys = reader.table("keys", {"path": keys_beside(path.parent, to_listen=True)}, required=("path",))
    for section, parts in (("workers", groups), ("peers", peers)):
        _report_unreachable(section, parts, coordinator, reader)
    _report_unkept_address(coordinator, reader)
    _report_shared_names(groups, reader)
    _report_memory_of_no_use(groups, reader)
    _report_caches_of_no_use(groups, reader)
    _report_unreached_givers(groups, reader)
    _report_taken_endpoints(groups, coordinator, reader)
    _report_taken_names(peers, groups, reader)
    _report_too_many(groups, peers, reader)
    reader.finish()
    return ClusterConfig(
        model=model["path"],
        coordinator=CoordinatorConfig(**_used(coordinator)),
        workers=tuple(WorkerGroup(**_used(group)) for group in groups),
        peers=tuple(PeerConfig(**_used(peer)) for peer in peers),
        lookahead=LookaheadConfig(**lookahead),
        placement=PlacementConfig(**placement),
        launch=LaunchConfig(**launch),
        keys=keys.get("path"),
    )


def _placed(keys: dict[str, Read], model_file: Read, keys_file: Read, cache: Read | None = None) -> KeysOf:
    """The keys of a table that may have a `host`: a path elsewhere cannot be looked at from here."""
    here = {"model_path": model_file, "command": _no_command, "keys_path": keys_file}
    there = {"model_path": _path_there, "command": _command, "keys_path": _path_there}
    if cache is not None:
        here |= {"cache": cache, "give": _own_endpoint}
        there |= {"cache": _path_there, "give": _own_endpoint}
    return lambda found: {**keys, **(here if found.get("host", LOCAL) == LOCAL else there)}


def _launch_keys(folder: Path) -> dict[str, Read]:
    address = text(ADDRESS, "a host's name or address, without a port,")
    return {"logs": folder_beside(folder), "ssh_config": file_beside(folder), "address": address}


def _report_unreachable(section: str, parts: list[dict[str, Any]], coordinator: dict[str, Any], reader: Reader) -> None:
    listen = coordinator.get("listen", DEFAULT_LISTEN)
    for index, part in enumerate(parts):
        if part.get("host") is not None and not listen.startswith("tcp://"):
            reason = (
                f"no other machine can dial {listen}, where the coordinator listens: a tcp endpoint is expected there"
            )
            reader.problem(section, index, "host", reason)
        if part.get("host") is not None and "keys" in reader.document and part.get("keys_path") is None:
            reader.problem(
                section, index, "host", "the cluster has keys, and a path of its key there is expected: keys_path"
            )


def _report_unkept_address(coordinator: dict[str, Any], reader: Reader) -> None:
    listen = coordinator.get("listen", DEFAULT_LISTEN)
    if "keys" not in reader.document and not is_local(listen):
        reader.problem("coordinator", 0, "listen", f"{listen} {NEEDS_KEYS}")


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


def _report_unreached_givers(groups: list[dict[str, Any]], reader: Reader) -> None:
    for index, group in enumerate(groups):
        if "give" in group:
            for key, reason in _wrong_with_giver(group, keyed="keys" in reader.document):
                reader.problem("workers", index, key, reason)


def _wrong_with_giver(group: dict[str, Any], *, keyed: bool) -> Iterator[tuple[str, str]]:
    """Keys of a group that gives, and what is wrong. A path of keys on another machine is looked at there."""
    give, elsewhere, own = group["give"], group.get("host") is not None, group.get("keys_path")
    if is_local(give):
        if elsewhere:
            yield "give", f"no other machine can dial {give}: an address of that one is expected"
    elif not keyed:
        yield "give", f"{give} {NEEDS_KEYS}"
    if own is not None and not elsewhere:
        try:
            giving_keys(own)
        except ConfigError as error:
            yield "keys_path", str(error)


def _report_taken_endpoints(groups: list[dict[str, Any]], coordinator: dict[str, Any], reader: Reader) -> None:
    """Who gives on this machine needs a port that neither the coordinator nor another group has."""
    listen = coordinator.get("listen", DEFAULT_LISTEN)
    taken = dict.fromkeys(
        (listen, work_endpoint(listen), inputs_endpoint(listen), bulk_endpoint(listen)), "the coordinator's"
    )
    for index, group in enumerate(groups):
        give = group.get("give")
        if give is None or group.get("host") is not None:
            continue
        if give in taken:
            reader.problem("workers", index, "give", f"{give} is {taken[give]} already: listen elsewhere")
        taken.setdefault(give, f"that of {group.get('name')}")


def _report_shared_names(groups: list[dict[str, Any]], reader: Reader) -> None:
    seen: set[str] = set()
    for index, group in enumerate(groups):
        if group.get("name") in seen:
            reader.problem("workers", index, "name", f"another group is called {group['name']} too")
        seen.add(group.get("name", ""))


def _report_taken_names(peers: list[dict[str, Any]], groups: list[dict[str, Any]], reader: Reader) -> None:
    taken = {f"{group.get('name')}-{index}": "a worker" for group in groups for index in range(group.get("count", 1))}
    taken |= {COORDINATOR: "the coordinator", LOOKAHEAD: "the lookahead process", WEIGHTS: "the weights process"}
    taken |= {LAUNCHER: "the launcher", RAY: "what holds on to workers on Ray"}
    taken |= {f"{group.get('name')}{OF_A_CACHE}": "what gives from a cache" for group in groups if "give" in group}
    for index, peer in enumerate(peers):
        name = peer.get("name", "")
        if name in taken:
            reader.problem("peers", index, "name", f"{taken[name]} is called {name} too")
        elif name.endswith(OF_A_CACHE):
            reader.problem(
                "peers", index, "name", f"{name} ends in {OF_A_CACHE}, as only names of what gives weights do"
            )
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


def _local_endpoint(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"an endpoint is expected, such as {DEFAULT_LISTEN}, found {shown(value)}")
    check_endpoint(value, keyed=True)  # whether there are keys is told by _report_unkept_address
    check_endpoint(value, dial=True, keyed=True)  # workers must be able to dial it, so a port must be named
    work_endpoint(value)
    return value


def _own_endpoint(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"an endpoint is expected, such as {DEFAULT_LISTEN}, found {shown(value)}")
    return check_named(value, keyed=True)  # whether there are keys is told by _report_unreached_givers


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


def _yes_or_no(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"true or false is expected, found {shown(value)}")
    return value


def _replicas(value: Any) -> float:
    if type(value) not in (int, float) or not 1 <= value <= MAX_REPLICAS:
        raise ValueError(f"a number from 1 to {MAX_REPLICAS:g} is expected, found {shown(value)}")
    return float(value)


def _gib(value: Any) -> float | None:
    if value == "auto":
        return None
    if type(value) not in (int, float) or not 0 <= value <= MAX_GIB:
        raise ValueError(f'"auto" or a number from 0 to {MAX_GIB} is expected, found {shown(value)}')
    return float(value)


def _share(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError(f"a number from 0 to 1 is expected, found {shown(value)}")
    return float(value)


NEEDS_KEYS = (
    "can be reached from elsewhere, and nothing on the wire is encrypted without keys: make some by "
    '`expertmesh keys new keys`, and add a section [keys] with path = "keys"'
)
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
    "local_experts": _yes_or_no,
    "orphan_s": whole(1, MAX_ORPHAN_S),
    "audit": _share,
    "bulk": _yes_or_no,
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

ONE_VALUE_KEYS = frozenset({"mode"})

LOOKAHEAD_KEYS: dict[str, Read] = {
    "enabled": _when,
    "predictor": one_of(*PREDICTORS),
}

BUDGETED = " or ".join(map(shown, BUDGETED_SOURCES))

PLACEMENT_KEYS: dict[str, Read] = {"replicas": _replicas, "by": one_of(*PLACED_BY)}
