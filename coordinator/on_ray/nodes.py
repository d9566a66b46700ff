"""The nodes of a Ray cluster, before anything starts: whether they can run workers; all that is wrong, at once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coordinator.config import ClusterConfig
from coordinator.host_check import look_around
from coordinator.host_report import Expected, differences
from coordinator.launch_plan import Placed, plan_here
from coordinator.on_ray.plan import RAY, RayWorker, dialled, why_not_placed
from coordinator.rendering.parts import option_of
from protocol.errors import ConfigError

NODES_S = 45.0
"""Time for all nodes to answer."""
CHECK_S = 120.0
"""Time for all of it: joining takes Ray some seconds."""
Told = Mapping[str, Any] | str
"""What a node told of itself (host_check.look_around), or why it did not."""


def problems_of_ray(config: ClusterConfig, placed: Placed) -> list[str]:
    """What keeps the Ray cluster from running its part of `config`, `placed` there, asked by a process of its own."""
    [asking] = [process for process in placed(plan_here(config)).processes if process.name == RAY]
    try:
        done = subprocess.run([*asking.command, "--check"], capture_output=True, timeout=CHECK_S, check=False)
    except subprocess.TimeoutExpired:
        return [f"no answer of Ray within {CHECK_S:g} s"]
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing was said"]
        return [lines[-1].removeprefix("error: ")]
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def alive(ray: Any) -> list[Mapping[str, Any]]:
    """The nodes that there are."""
    return [node for node in ray.nodes() if node["Alive"]]


def processors(nodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How many each has, by its name."""
    return {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in nodes}


def problems(ray: Any, workers: Sequence[RayWorker], listen: str, model: Path) -> list[str]:
    """All that keeps the workers from running; `model` is the coordinator's."""
    nodes = alive(ray)
    found = [reason for reason in [why_not_placed(workers, processors(nodes))] if reason]
    try:
        dialled(workers[0], listen, ray.util.get_node_ip_address(), {node["NodeManagerAddress"] for node in nodes})
    except ConfigError as error:
        found.append(str(error))
    models = models_of(workers)
    own = look_around({model, *models}, ())
    expected = Expected(version=own["version"], protocol=own["protocol"], model=own["models"][str(model)], word="")
    return [*found, *wrong_with(_told(ray, nodes, models), models, expected)]


def models_of(workers: Sequence[RayWorker]) -> list[Path]:
    """Each once; those who fetch their weights have none."""
    paths = (option_of(worker.arguments, "--model") for worker in workers)
    return [Path(path) for path in dict.fromkeys(paths) if path is not None]


def wrong_with(told: Mapping[str, Told], models: Collection[Path], expected: Expected) -> Iterator[str]:
    """With the nodes of these names, one sentence each."""
    for name, report in told.items():
        if isinstance(report, str):
            yield f"node {name} of Ray: {report}"
        else:
            yield from (
                f"node {name} of Ray: {reason}" for reason in differences(report, models, "expertmesh", expected)
            )


def _told(ray: Any, nodes: Sequence[Mapping[str, Any]], models: Collection[Path]) -> dict[str, Told]:
    """Of all nodes that workers can be placed on; they are asked at the same time."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(look_around)
    asked = {}
    for node in nodes:
        if node["Resources"].get("CPU", 0.0):
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = look.options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(list(models), [])
            asked[f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"] = task
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=NODES_S) if asked else ([], [])
    return {name: _answer(ray, task, task in ready) for name, task in asked.items()}


def _answer(ray: Any, task: Any, ready: bool) -> Told:
    if not ready:
        return f"no answer within {NODES_S:g} s"
    try:
        told: Mapping[str, Any] = ray.get(task)
    except Exception as error:  # of that node's, whatever it is
        return (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return told
