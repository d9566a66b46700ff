"""What another machine of a cluster file runs, if a supervisor there is to do it and no launcher."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coordinator.config import COORDINATOR, WEIGHTS, ClusterConfig, PeerConfig, WorkerGroup
from coordinator.dialling import ANYWHERE, address_of, seen_from_elsewhere
from coordinator.hosts import Host
from coordinator.launch_plan import NO_LOOKAHEAD, ProcessPlan
from coordinator.rendering.parts import supervised, with_option
from protocol.endpoints import is_local
from protocol.errors import ConfigError

ELSEWHERE = Host(name="launcher")
"""This machine, seen from there."""


def of_host(config: ClusterConfig, named: str, *, python: str) -> tuple[Host, list[ProcessPlan]]:
    """The machine that the file calls `named`, by its whole URL or the host in it, and its processes as it runs them.

    ConfigError if there is none of that name, or it cannot dial the coordinator.
    """
    hosts = dict.fromkeys(part.host for part in config.remote if part.host is not None)
    found = [host for host in hosts if named in (str(host), host.name)]
    if len(found) != 1:
        names = ", ".join(map(str, found or hosts)) or "none"
        raise ConfigError(f"{named} is to be one machine of the cluster file, found {names}")
    connect = _reached(config)
    plans = supervised(_seen_from(config, found[0]), python=python, lookahead=NO_LOOKAHEAD).processes
    away = (COORDINATOR, WEIGHTS)
    there = [plan for plan in plans if plan.host is None and plan.name not in away]
    return found[0], [replace(plan, command=with_option(plan.command, "--connect", connect)) for plan in there]


def _reached(config: ClusterConfig) -> str:
    """Where other machines dial the coordinator. ConfigError if they cannot."""
    listen = config.coordinator.listen
    endpoint = seen_from_elsewhere(listen, config.launch.address)
    if is_local(endpoint):
        raise ConfigError(
            f"listen is {listen}, which no other machine can dial without a launcher's tunnel: keys, and "
            "tcp://0.0.0.0:PORT, are expected"
        )
    if address_of(endpoint)[0] in ("", *ANYWHERE):
        raise ConfigError(f"listen is {listen}: what other machines dial is expected as address of [launch]")
    return endpoint


def _seen_from(config: ClusterConfig, host: Host) -> ClusterConfig:
    """The same cluster for that machine: it is here, and this one is elsewhere."""

    def groups() -> Iterator[WorkerGroup]:
        for group in config.workers:
            if group.host == host:
                yield replace(group, host=None)
            elif group.host is None:
                yield replace(group, host=ELSEWHERE, give="")
            else:
                yield group

    def place(peer: PeerConfig) -> PeerConfig:
        return replace(peer, host=None if peer.host == host else peer.host or ELSEWHERE)

    return replace(config, workers=tuple(groups()), peers=tuple(map(place, config.peers)))
