"""A cluster as a value; `cluster_file.py` reads one from a file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.cores import usable_cores
from coordinator.halves import When
from coordinator.hosts import DEFAULT_COMMAND, Host
from protocol.bulk import DEFAULT_MB_S
from protocol.neighbours import beside, bulk_endpoint

DEFAULT_LISTEN = "tcp://127.0.0.1:7600"
MAX_THREADS = 512
MAX_ORPHAN_S = 10**6
MAX_WORKERS = 64
"""Of one group, or one answer."""
MAX_ALL_WORKERS = 256
"""Of one coordinator, peers included."""
MAX_PEERS = 64
PLACED_BY = ("measured", "even")
MAX_REPLICAS = 2.0
"""Copies of experts for each of them: no expert has more than two holders."""
COORDINATOR, LOOKAHEAD, WEIGHTS = "coordinator", "lookahead", "weights"
"""What their processes are called."""
OF_A_CACHE = f"-{WEIGHTS}"
"""How the name of a process ends that gives what is in a group's cache."""
DEVICES = "cpu or cuda:0 to cuda:63"
MAX_DEVICE = 63
MAX_TOKENS = 2**31 - 1
"""Of one answer: positions are 32-bit numbers."""


PREDICTORS = ("next-router", "next-router-rescaled", "previous", "popularity", "random")
"""What a lookahead process can be told to predict by; the first is the default."""


def work_endpoint(control: str) -> str:
    """Where work listens when control listens there: the next port, or the name with `-work`. ConfigError if none."""
    return beside(control, 1, "work")


def inputs_endpoint(control: str) -> str:
    """Where layer inputs are published then: the port after that, or the name with `-inputs`. ConfigError if none."""
    return beside(control, 2, "inputs")


def endpoints_from(listen: str) -> tuple[str, str, str, str]:
    """Where a coordinator that listens there has control, work, layer inputs, and bulk if it gives weights."""
    return listen, work_endpoint(listen), inputs_endpoint(listen), bulk_endpoint(listen)


def gives_weights(process: str) -> bool:
    """Whether that is the name of a process that does."""
    return process == WEIGHTS or process.endswith(OF_A_CACHE)


def is_beside(process: str) -> bool:
    """Whether that is the name of one without which answers go on, and the cluster begins."""
    return process == LOOKAHEAD or gives_weights(process)


def is_device(name: str) -> bool:
    """Whether a device can be called that; there need be none."""
    return re.fullmatch(r"cpu|cuda:([0-9]|[1-5][0-9]|6[0-3])", name) is not None


def default_threads() -> int:
    """One thread for each usable core."""
    return min(len(usable_cores()), MAX_THREADS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """What the coordinator process is started with."""

    listen: str = DEFAULT_LISTEN
    """Endpoint of the control connection; work, layer inputs and weights take the next three ports, or the ipc name
    with -work, -inputs and -bulk."""
    threads: int = field(default_factory=default_threads)
    """Threads of its kernels."""
    kv: str = "f16"
    """Type of the keys and values in the cache: "f16" or "f32"."""
    chunk: int | None = None
    """Prompt rows read in one step at most; None leaves it to the coordinator."""
    drafts: int | None = None
    """Tokens guessed by one step for a request at most, if that does not say; None leaves it to the coordinator."""
    halves: When = "auto"
    """When a step is computed in two halves, so that workers compute while the coordinator does."""
    device: str = "cpu"
    """Where the dense half is computed: "cpu", or "cuda:N"."""
    vram_gib: float | None = None
    """GiB of experts in that device's memory, if it has its own; None is as much as fits."""
    local_experts: bool = True
    """Whether it computes experts that nobody holds, or has in time; else requests that need them fail."""
    orphan_s: int | None = None
    """Seconds for which everybody else waits for a coordinator that is gone; None leaves it to them, or is 300 if it
    has a GPU to open."""
    profile: Path | None = None
    """Where it counts which experts are used; None if it does not."""
    audit: float = 0.0
    """Share of workers' answers that it computes again and compares, 0 to 1."""
    bulk: bool = False
    """Whether weights are given to workers that have no model file, also if none of this file's workers is one."""
    bulk_mb_s: float = DEFAULT_MB_S
    """Megabytes of weights a second at most, to all of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroup:
    """Expert workers that are alike."""

    name: str
    """The workers are called name-0, name-1 and so on."""
    count: int = 1
    """How many there are."""
    threads: int = 1
    """Threads of the kernels of each."""
    model_path: Path | None = None
    """The model that they map, if it is not at the coordinator's path."""
    cache: Path | None = None
    """The folder into which they fetch the weights, if they have no model."""
    give: str = ""
    """Endpoint where a process beside them gives what is in their cache to others; empty if none does."""
    keys_path: Path | None = None
    """The key file that they dial with, if it is not of the cluster's folder of keys."""
    source: str = "auto"
    """Where their experts' bytes come from, one of `protocol.expert_sources.SOURCES`."""
    ram_gib: float | None = None
    """GiB for copies or slots of each; None is what fits."""
    headroom_gib: float | None = None
    """GiB of memory left to everything else; None leaves it to them."""
    host: Host | None = None
    """Where they run; None is this machine."""
    command: tuple[str, ...] = DEFAULT_COMMAND
    """What `expertmesh` is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """One process that holds experts in a GPU's memory."""

    name: str
    device: int = 0
    """The N of cuda:N."""
    vram_gib: float | None = None
    """GiB of experts in its memory; None is what is free, less a reserve."""
    model_path: Path | None = None
    """The model that it reads, if it is not at the coordinator's path."""
    host: Host | None = None
    """Where it runs; None is this machine."""
    command: tuple[str, ...] = DEFAULT_COMMAND
    """What `expertmesh` is there."""
    keys_path: Path | None = None
    """The key file that it dials with, if it is not of the cluster's folder of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookaheadConfig:
    """The process that has experts read before they are needed."""

    enabled: When = "auto"
    """"auto": where workers compute from files that do not fit in this machine's memory."""
    predictor: str = PREDICTORS[0]
    """One of PREDICTORS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """How processes are started and what is kept of them."""

    logs: Path | None = None
    """The folder of their logs; None is one of the account's own (`process_logs.default_folder`)."""
    ssh_config: Path | None = None
    """Settings of ssh for the other machines; None: the account's own."""
    address: str | None = None
    """What other machines dial if the coordinator listens at all addresses; None: where ssh comes from, seen there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """How experts are shared out among workers and peers."""

    replicas: float = 1.0
    """Copies of all experts together, as a multiple of the experts: above 1 those used most have a second holder."""
    by: str = "measured"
    """"measured", how fast workers were, or "even", their threads alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """All processes of one cluster, and the model they run."""

    model: Path
    coordinator: CoordinatorConfig = field(default_factory=CoordinatorConfig)
    workers: tuple[WorkerGroup, ...] = ()
    peers: tuple[PeerConfig, ...] = ()
    lookahead: LookaheadConfig = field(default_factory=LookaheadConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    keys: Path | None = None
    """The folder of keys; None if nothing on the wire is encrypted."""

    @property
    def worker_threads(self) -> int:
        """Threads of all workers of this machine together."""
        return sum(group.count * group.threads for group in self.workers if group.host is None)

    @property
    def gives_weights(self) -> bool:
        """Whether a process beside the coordinator gives weights."""
        return self.coordinator.bulk or any(group.cache is not None and group.count for group in self.workers)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where others dial: control, work, layer inputs and, if weights are given, bulk."""
        control, work, inputs, bulk = endpoints_from(self.coordinator.listen)
        return (control, work, inputs, bulk) if self.gives_weights else (control, work, inputs)

    @property
    def gives_here(self) -> tuple[str, ...]:
        """Where caches of this machine are given."""
        return tuple(group.give for group in self.workers if group.give and group.count and group.host is None)

    @property
    def remote(self) -> tuple[WorkerGroup | PeerConfig, ...]:
        """Those of its parts that run on other machines."""
        groups = tuple(group for group in self.workers if group.host is not None and group.count)
        return groups + tuple(peer for peer in self.peers if peer.host is not None)
