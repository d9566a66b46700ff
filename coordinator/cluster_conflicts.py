"""What a cluster file may not say together: each check looks at tables whose values are good one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.config import (
    COORDINATOR,
    DEFAULT_LISTEN,
    LOOKAHEAD,
    MAX_ALL_WORKERS,
    MAX_PEERS,
    OF_A_CACHE,
    WEIGHTS,
    endpoints_from,
)
from coordinator.on_ray.plan import RAY
from coordinator.process_logs import LAUNCHER
from coordinator.toml_reader import Reader
from coordinator.toml_values import shown
from protocol.endpoints import is_local
from protocol.errors import ConfigError
from protocol.expert_sources import BUDGETED_SOURCES
from protocol.keys import giving_keys

Table = dict[str, Any]
"""Values as their readers returned them; those that were wrong are missing."""

NEEDS_KEYS = (
    "can be reached from elsewhere, and nothing on the wire is encrypted without keys: make some by "
    '`expertmesh keys new keys`, and add a section [keys] with path = "keys"'
)
BUDGETED = " or ".join(map(shown, BUDGETED_SOURCES))


def report_conflicts(coordinator: Table, groups: list[Table], peers: list[Table], reader: Reader) -> None:
    """Note as problems of `reader` what these tables of its document may not say beside each other."""
    _report_unkept_address(coordinator, reader)
    _report_memory_of_no_device(coordinator, reader)
    for section, parts in (("workers", groups), ("peers", peers)):
        _report_unreachable(section, parts, coordinator, reader)
    _report_shared_names(groups, reader)
    _report_memory_of_no_use(groups, reader)
    _report_caches_of_no_use(groups, reader)
    _report_wrong_givers(groups, reader)
    _report_taken_endpoints(groups, coordinator, reader)
    _report_taken_names(peers, groups, reader)
    _report_too_many(groups, peers, reader)


def _report_unreachable(section: str, parts: list[Table], coordinator: Table, reader: Reader) -> None:
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


def _report_unkept_address(coordinator: Table, reader: Reader) -> None:
    listen = coordinator.get("listen", DEFAULT_LISTEN)
    if "keys" not in reader.document and not is_local(listen):
        reader.problem("coordinator", 0, "listen", f"{listen} {NEEDS_KEYS}")


def _report_memory_of_no_device(coordinator: Table, reader: Reader) -> None:
    if "vram_gib" in coordinator and coordinator.get("device", "cpu") == "cpu":
        reader.problem("coordinator", 0, "vram_gib", 'this is memory of a GPU: it needs device = "cuda:0", or another')


def _report_memory_of_no_use(groups: list[Table], reader: Reader) -> None:
    for index, group in enumerate(groups):
        source = group.get("source", "auto")
        if group.get("ram_gib") is not None and source not in BUDGETED_SOURCES:
            reason = (
                f"of no use with source = {shown(source)}, which takes what it needs; leave it out, or take {BUDGETED}"
            )
            reader.problem("workers", index, "ram_gib", reason)


def _report_caches_of_no_use(groups: list[Table], reader: Reader) -> None:
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


def _report_wrong_givers(groups: list[Table], reader: Reader) -> None:
    for index, group in enumerate(groups):
        if "give" in group:
            for key, reason in _wrong_with_giver(group, keyed="keys" in reader.document):
                reader.problem("workers", index, key, reason)


def _wrong_with_giver(group: Table, *, keyed: bool) -> Iterator[tuple[str, str]]:
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


def _report_taken_endpoints(groups: list[Table], coordinator: Table, reader: Reader) -> None:
    """Who gives on this machine needs a port that neither the coordinator nor another group has."""
    taken = dict.fromkeys(endpoints_from(coordinator.get("listen", DEFAULT_LISTEN)), "the coordinator's")
    for index, group in enumerate(groups):
        give = group.get("give")
        if give is None or group.get("host") is not None:
            continue
        if give in taken:
            reader.problem("workers", index, "give", f"{give} is {taken[give]} already: listen elsewhere")
        taken.setdefault(give, f"that of {group.get('name')}")


def _report_shared_names(groups: list[Table], reader: Reader) -> None:
    seen: set[str] = set()
    for index, group in enumerate(groups):
        if group.get("name") in seen:
            reader.problem("workers", index, "name", f"another group is called {group['name']} too")
        seen.add(group.get("name", ""))


def _report_taken_names(peers: list[Table], groups: list[Table], reader: Reader) -> None:
    taken = {f"{group.get('name')}-{index}": "a worker" for group in groups for index in range(group.get("count", 1))}
    taken |= {COORDINATOR: "the coordinator", LOOKAHEAD: "the lookahead process", WEIGHTS: "the weights process"}
    taken |= {LAUNCHER: "the launcher", RAY: "what holds on to workers on Ray"}
    taken |= {f"{group.get('name')}{OF_A_CACHE}": "what gives from a cache" for group in groups if "give" in group}
    for index, peer in enumerate(peers):
        name = peer.get("name", "")
        if name in taken:
            reader.problem("peers", index, "name", f"{taken[name]} is called {name} too")
        elif name.endswith(OF_A_CACHE):
            reason = f"{name} ends in {OF_A_CACHE}, as only names of what gives weights do"
            reader.problem("peers", index, "name", reason)
        elif name:
            taken[name] = "another peer"


def _report_too_many(groups: list[Table], peers: list[Table], reader: Reader) -> None:
    if len(peers) > MAX_PEERS:
        reader.problem("peers", MAX_PEERS, None, f"{len(peers)} peers found, {MAX_PEERS} at most are expected")
    total = min(len(peers), MAX_PEERS)
    for index, group in enumerate(groups):
        total += group.get("count", 1)
        if total > MAX_ALL_WORKERS:
            reason = f"{total} workers and peers in all up to here, {MAX_ALL_WORKERS} at most are expected"
            reader.problem("workers", index, "count", reason)
            return
