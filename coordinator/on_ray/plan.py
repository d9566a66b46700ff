"""A launch plan whose workers Ray places: one process here asks for them, and holds on to them. Pure."""

from __future__ import annotations

import ipaddress
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from coordinator.launch_plan import LaunchPlan, ProcessPlan
from coordinator.rendering.parts import with_option
from protocol.errors import ConfigError

RAY = "ray"
"""What the process that asks is called."""
WORKERS = "expert_worker.main"


@dataclass(frozen=True, slots=True, kw_only=True)
class RayWorker:
    """A worker, wherever it is placed."""

    name: str
    threads: int
    arguments: tuple[str, ...]
    """Of the interpreter there."""

    def to_json(self) -> str:
        """For a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RayWorker:
        """What `to_json` made."""
        found = json.loads(text)
        return cls(name=found["name"], threads=found["threads"], arguments=tuple(found["arguments"]))


def placed_by_ray(plan: LaunchPlan, address: str) -> LaunchPlan:
    """The same plan, but for the workers of this machine: the Ray cluster at `address` has them.

    ConfigError if there are none.
    """
    moved = [process for process in plan.processes if _is_worker(process)]
    if not moved:
        raise ConfigError("no workers to be placed by Ray: [[workers]] of the cluster file says how many there are")
    workers = [
        RayWorker(
            name=process.name,
            threads=process.threads,
            arguments=with_option(process.command, "--of", None)[1:],  # how many share a node is Ray's to decide
        )
        for process in moved
    ]
    options = ["--address", address, "--listen", plan.listen, "--model", str(plan.model)]
    for worker in workers:
        options += ["--worker", worker.to_json()]
    command = (sys.executable, "-P", "-m", "coordinator.on_ray.main", *options)
    asking = ProcessPlan(name=RAY, command=command, threads=0, cores=())
    stay = [process for process in plan.processes if process not in moved]
    return replace(plan, processes=(*stay, asking))


def dialled(worker: RayWorker, listen: str, here: str, nodes: Collection[str]) -> RayWorker:
    """The worker, dialling the coordinator at an address that all `nodes` can reach.

    `here` is this machine's address among theirs. ConfigError if there is none.
    """
    if set(nodes) <= {here} or "--connect" not in worker.arguments:
        return worker
    host = listen.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if listen.startswith("ipc://") or _is_loopback(host):
        elsewhere = ", ".join(sorted(set(nodes) - {here}))
        raise ConfigError(
            f"Ray has nodes on other machines ({elsewhere}), which cannot dial {listen}: keys and a listen of "
            f"tcp://0.0.0.0:PORT are expected"
        )
    if host in ("0.0.0.0", "::"):
        connect = f"tcp://{here}:{listen.rpartition(':')[2]}"
        return replace(worker, arguments=with_option(worker.arguments, "--connect", connect))
    return worker


def why_not_placed(workers: Sequence[RayWorker], processors: Mapping[str, float]) -> str:
    """Why nodes with so many `processors` each, by name, cannot have all workers; empty if they can.

    Ray itself would wait for more of them.
    """
    most = max(processors.values(), default=0.0)
    for worker in workers:
        if worker.threads > most:
            return f"{worker.name} has {worker.threads} threads, and no node of Ray more than {most:g} CPUs"
    wanted = sum(worker.threads for worker in workers)
    if wanted > sum(processors.values()):
        return f"all workers have {wanted} threads, and all nodes of Ray {sum(processors.values()):g} CPUs"
    return ""


def _is_worker(process: ProcessPlan) -> bool:
    return process.command[1:4] == ("-P", "-m", WORKERS)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
