"""What the launcher will start, resolved before anything is started: pure, so `--dry-run` can show it."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coordinator.config import (
    COORDINATOR,
    LOOKAHEAD,
    OF_A_CACHE,
    WEIGHTS,
    ClusterConfig,
    CoordinatorConfig,
    PeerConfig,
    WorkerGroup,
    inputs_endpoint,
    work_endpoint,
)
from coordinator.dialling import seen_from_elsewhere, with_endpoint
from coordinator.hosts import MODULES, Host
from coordinator.lookahead_choice import LookaheadChoice, lookahead_here
from protocol.endpoints import check_endpoint
from protocol.errors import ConfigError
from protocol.neighbours import bulk_endpoint

PEERS_READY_S = 600
"""Time for peers to have read their experts: there may be a hundred GiB of them, on a slow disk."""
OPENING_S = 300
"""Time for a coordinator to open its GPU: kernels are compiled at their first use, dense weights copied. Meanwhile it
answers nobody."""
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

    def placed(part: WorkerGroup | PeerConfig, cores: int, kind: str, options: Sequence[str]) -> tuple[str, ...]:
        if part.host is None:
            return (python, "-P", "-m", MODULES[kind], *options)
        return _elsewhere(config, part, cores, kind, options, tunnelled=part.host in tunnels)

    members = [(f"{group.name}-{index}", group) for group in config.workers for index in range(group.count)]
    shares = iter(share_cores([group.threads for _, group in members if group.host is None], cores))
    workers = [
        ProcessPlan(
            name=name,
            command=placed(group, group.threads, "worker", _worker_options(config, name, group)),
            threads=group.threads,
            cores=next(shares) if group.host is None else (),
            host=group.host,
        )
        for name, group in members
    ]
    peers = [
        ProcessPlan(
            name=peer.name,
            command=placed(peer, 0, "peer", _peer_options(config, peer)),
            threads=1,
            cores=(),
            host=peer.host,
        )
        for peer in config.peers
    ]
    coordinator = ProcessPlan(
        name=COORDINATOR,
        command=_coordinator_command(config, _awaited(config), python),
        threads=config.coordinator.threads,
        cores=(),
    )
    beside = [
        ProcessPlan(name=LOOKAHEAD, command=_lookahead_command(config, python), threads=1, cores=())
        for _ in range(lookahead.on)
    ]
    giving = [
        ProcessPlan(name=WEIGHTS, command=_weights_command(config, python), threads=1, cores=())
        for _ in range(config.gives_weights)
    ]
    giving += [
        ProcessPlan(
            name=group.name + OF_A_CACHE,
            command=placed(group, 0, "weights", _cache_options(config, group)),
            threads=1,
            cores=(),
            host=group.host,
        )
        for group in config.workers
        if group.give and group.count
    ]
    reaching = (_tunnel(config, host) for host in tunnels)
    return LaunchPlan(
        model=config.model,
        listen=config.coordinator.listen,
        processes=(coordinator, *giving, *reaching, *workers, *peers, *beside),
        lookahead=lookahead,
        keys=config.keys,
    )


def _awaited(config: ClusterConfig) -> int:
    """Members without which the coordinator does not begin; workers that fetch their weights come when they can."""
    return sum(group.count for group in config.workers if group.cache is None) + len(config.peers)


def share_cores(threads: Sequence[int], cores: Sequence[int]) -> list[tuple[int, ...]]:
    """Disjoint cores for workers of so many threads; all empty if there are too few, for two pools on one core
    are slower than what the operating system makes of it."""
    if sum(threads) > len(cores):
        return [()] * len(threads)
    starts = [sum(threads[:index]) for index in range(len(threads))]
    return [tuple(cores[start : start + count]) for start, count in zip(starts, threads, strict=True)]


def _coordinator_command(config: ClusterConfig, workers: int, python: str) -> tuple[str, ...]:
    chosen = config.coordinator
    options = ["--model", str(config.model), "--listen", chosen.listen, "--workers", str(workers)]
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
    return (python, "-P", "-m", "coordinator.main", *options)


def _tunnel(config: ClusterConfig, host: Host) -> ProcessPlan:
    """What makes the coordinator's endpoints those of another machine's loopback interface, too."""
    command = next(part.command for part in config.remote if part.host == host)
    listen = check_endpoint(config.coordinator.listen, dial=True, keyed=True)
    endpoints = (listen, work_endpoint(listen), inputs_endpoint(listen), bulk_endpoint(listen))
    ssh = host.running(
        (*command, "hosted", "hold"),
        settings=config.launch.ssh_config,
        forwarded=[endpoint.removeprefix("tcp://") for endpoint in endpoints],
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


def _worker_options(config: ClusterConfig, name: str, group: WorkerGroup) -> list[str]:
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


def _peer_options(config: ClusterConfig, peer: PeerConfig) -> list[str]:
    model = peer.model_path or config.model
    options = [*_joining(config, peer.name, "--model", model, peer.keys_path), "--device", f"cuda:{peer.device}"]
    return [*options, "--vram-gib", _gib(peer.vram_gib)]


def _lookahead_command(config: ClusterConfig, python: str) -> tuple[str, ...]:
    options = [*_joining(config, LOOKAHEAD, "--model", config.model), "--predictor", config.lookahead.predictor]
    return (python, "-P", "-m", "expert_worker.lookahead.main", *options)


def _weights_command(config: ClusterConfig, python: str) -> tuple[str, ...]:
    options = ["--model", str(config.model), "--listen", bulk_endpoint(config.coordinator.listen)]
    options += [] if config.keys is None else ["--keys", str(config.keys)]
    options += ["--mb-s", f"{config.coordinator.bulk_mb_s:.12g}"]
    return (python, "-P", "-m", MODULES["weights"], *options)


def _cache_options(config: ClusterConfig, group: WorkerGroup) -> list[str]:
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
