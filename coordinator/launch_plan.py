"""What the launcher will start, resolved before anything is started: pure, so `--dry-run` can show it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coordinator.config import (
    COORDINATOR,
    LOOKAHEAD,
    OF_A_CACHE,
    WEIGHTS,
    ClusterConfig,
    PeerConfig,
    WorkerGroup,
)
from coordinator.dialling import seen_from_elsewhere, with_endpoint
from coordinator.hosts import MODULES, Host
from coordinator.launch_options import (
    cache_options,
    coordinator_options,
    lookahead_options,
    peer_options,
    weights_options,
    worker_options,
)
from coordinator.lookahead_choice import LookaheadChoice, lookahead_here
from protocol.endpoints import check_endpoint

TUNNEL = "tunnel:"
"""With what names of tunnels begin, and no other's does."""
NO_LOOKAHEAD = LookaheadChoice(on=False, reason="nobody asked for it")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """One process, on this machine or another."""

    name: str
    """"coordinator", "lookahead", "weights", or the name of a worker or peer."""
    command: tuple[str, ...]
    """Here without `--parent PID`, which the launcher adds; elsewhere the ssh that runs it there."""
    threads: int
    cores: tuple[int, ...]
    """The cores it is bound to; empty if it may use any, or if they are chosen elsewhere."""
    host: Host | None = None
    """None is this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """All processes of a cluster, the coordinator first."""

    model: Path
    listen: str
    processes: tuple[ProcessPlan, ...]
    lookahead: LookaheadChoice = NO_LOOKAHEAD
    """Whether a lookahead process is among them, and why."""
    keys: Path | None = None
    """The folder of keys, if there is one."""


Placed = Callable[[LaunchPlan], LaunchPlan]
"""May have some of a plan's processes run elsewhere."""


def placed_here(plan: LaunchPlan) -> LaunchPlan:
    """The plan as it is."""
    return plan


def plan_here(config: ClusterConfig, cores: Sequence[int] = (), tunnels: Sequence[Host] = ()) -> LaunchPlan:
    """The processes of `config` on this machine, run by this interpreter, workers bound to `cores`.

    `tunnels` are the machines that reach the coordinator through one.
    """
    return resolve(config, python=sys.executable, cores=cores, lookahead=lookahead_here(config), tunnels=tunnels)


def resolve(
    config: ClusterConfig,
    *,
    python: str,
    cores: Sequence[int],
    lookahead: LookaheadChoice = NO_LOOKAHEAD,
    tunnels: Sequence[Host] = (),
) -> LaunchPlan:
    """The processes of `config`, run by the interpreter `python`; workers get disjoint `cores` if there are enough."""
    start = _Start(config, python, tunnels)
    members = [(f"{group.name}-{index}", group) for group in config.workers for index in range(group.count)]
    shares = iter(share_cores([group.threads for _, group in members if group.host is None], cores))
    workers = [
        start.placed(
            name,
            "worker",
            group,
            worker_options(config, name, group),
            threads=group.threads,
            cores=next(shares) if group.host is None else (),
        )
        for name, group in members
    ]
    peers = [start.placed(peer.name, "peer", peer, peer_options(config, peer)) for peer in config.peers]
    giving = [start.here(WEIGHTS, MODULES["weights"], weights_options(config))] if config.gives_weights else []
    giving += [
        start.placed(group.name + OF_A_CACHE, "weights", group, cache_options(config, group))
        for group in config.workers
        if group.give and group.count
    ]
    beside = [start.here(LOOKAHEAD, "expert_worker.lookahead.main", lookahead_options(config))] if lookahead.on else []
    coordinator = start.here(
        COORDINATOR, "coordinator.main", coordinator_options(config), threads=config.coordinator.threads
    )
    reaching = (_tunnel(config, host) for host in tunnels)
    return LaunchPlan(
        model=config.model,
        listen=config.coordinator.listen,
        processes=(coordinator, *giving, *reaching, *workers, *peers, *beside),
        lookahead=lookahead,
        keys=config.keys,
    )


@dataclass(frozen=True, slots=True)
class _Start:
    """How the processes of a cluster are started."""

    config: ClusterConfig
    python: str
    tunnels: Sequence[Host]

    def here(
        self, name: str, module: str, options: Sequence[str], *, threads: int = 1, cores: tuple[int, ...] = ()
    ) -> ProcessPlan:
        command = (self.python, "-P", "-m", module, *options)
        return ProcessPlan(name=name, command=command, threads=threads, cores=cores)

    def placed(
        self,
        name: str,
        kind: str,
        part: WorkerGroup | PeerConfig,
        options: Sequence[str],
        *,
        threads: int = 1,
        cores: tuple[int, ...] = (),
    ) -> ProcessPlan:
        """On the machine of its part, bound to `cores` here; elsewhere a worker is given as many as it has threads."""
        if part.host is None:
            return self.here(name, MODULES[kind], options, threads=threads, cores=cores)
        there = threads if kind == "worker" else 0
        command = _elsewhere(self.config, part, there, kind, options, tunnelled=part.host in self.tunnels)
        return ProcessPlan(name=name, command=command, threads=threads, cores=(), host=part.host)


def share_cores(threads: Sequence[int], cores: Sequence[int]) -> list[tuple[int, ...]]:
    """Disjoint cores for workers of so many threads; all empty if there are too few, for two pools on one core
    are slower than what the operating system makes of it."""
    if sum(threads) > len(cores):
        return [()] * len(threads)
    starts = [sum(threads[:index]) for index in range(len(threads))]
    return [tuple(cores[start : start + count]) for start, count in zip(starts, threads, strict=True)]


def _tunnel(config: ClusterConfig, host: Host) -> ProcessPlan:
    """What makes the coordinator's endpoints those of another machine's loopback interface, too."""
    command = next(part.command for part in config.remote if part.host == host)
    listen = check_endpoint(config.coordinator.listen, dial=True, keyed=True)
    here = replace(config, coordinator=replace(config.coordinator, listen=listen))
    ssh = host.running(
        (*command, "hosted", "hold"),
        settings=config.launch.ssh_config,
        forwarded=[endpoint.removeprefix("tcp://") for endpoint in here.endpoints],
    )
    return ProcessPlan(name=f"{TUNNEL}{str(host).removeprefix('ssh://')}", command=ssh, threads=0, cores=(), host=host)


def _elsewhere(
    config: ClusterConfig,
    part: WorkerGroup | PeerConfig,
    cores: int,
    kind: str,
    options: Sequence[str],
    *,
    tunnelled: bool,
) -> tuple[str, ...]:
    """What runs a process of that kind on its machine, where it is given so many `cores` of its own."""
    assert part.host is not None
    listen = config.coordinator.listen
    if tunnelled:
        listen = check_endpoint(listen, dial=True, keyed=True)
    else:
        listen = seen_from_elsewhere(listen, config.launch.address)
    words = (*part.command, "hosted", "run", "--cores", str(cores), kind, *with_endpoint(options, listen))
    return part.host.running(words, settings=config.launch.ssh_config)
