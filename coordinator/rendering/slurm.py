"""Slurm: a batch script. Without keys a cluster stays on one node, with them its parts are a heterogeneous job."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from coordinator.config import ClusterConfig
from coordinator.rendering.parts import Part, everywhere, parts, with_option
from protocol.errors import ConfigError

HEAD = "$EXPERTMESH_HEAD"
"""The node of the coordinator, in the script."""
WARNED_S = 60
"""Before its time is over the job hears SIGTERM."""


def script(cluster: str, config: ClusterConfig, path: Path, *, python: str) -> str:
    """The text for `sbatch`. `path` is the cluster file, and `python` the interpreter, both as nodes see them.

    ConfigError for a cluster that cannot be one job.
    """
    listen = config.coordinator.listen
    made = parts(everywhere(config), python=python)
    if config.keys is None:
        return _on_one_node(cluster, made, path, python)
    if not listen.startswith("tcp://"):
        raise ConfigError(f"listen is {listen}: nodes reach each other at tcp://0.0.0.0:PORT")
    return _on_many_nodes(cluster, made, f"tcp://{HEAD}:{listen.rpartition(':')[2]}")


def _on_one_node(cluster: str, made: Sequence[Part], path: Path, python: str) -> str:
    """The launcher does all: without keys nothing leaves the node anyway."""
    gpus = sum(part.gpus * part.count for part in made)
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=expertmesh-{cluster}",
        f"#SBATCH --output=expertmesh-{cluster}-%j.log",
        f"#SBATCH --signal=TERM@{WARNED_S}",
        "#SBATCH --nodes=1",
        *_needs(1, sum(part.threads * part.count for part in made), gpus),
        "",
        f"exec srun --ntasks=1 {shlex.join([python, '-P', '-m', 'coordinator.cli', 'up', str(path)])}",
    ]
    return "\n".join(lines) + "\n"


def _on_many_nodes(cluster: str, made: Sequence[Part], connect: str) -> str:
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=expertmesh-{cluster}",
        f"#SBATCH --output=expertmesh-{cluster}-%j.log",
        f"#SBATCH --signal=B:TERM@{WARNED_S}",
    ]
    for number, part in enumerate(made):
        lines += ["#SBATCH hetjob"] * (number > 0)
        lines += _needs(part.count, part.threads, part.gpus)
    lines += ["", "set -u", "export EXPERTMESH_HEAD=$(hostname)  # the batch script runs where the coordinator does"]
    for number, part in enumerate(made):
        lines += _step(number, part, connect)
    return "\n".join([*lines, *_END]) + "\n"


def _needs(tasks: int, threads: int, gpus: int) -> Iterator[str]:
    yield f"#SBATCH --ntasks={tasks}"
    yield f"#SBATCH --cpus-per-task={threads}"
    if gpus:
        yield f"#SBATCH --gpus-per-task={gpus}"


def _step(number: int, part: Part, connect: str) -> list[str]:
    """Lines that start all processes of a part in the background."""
    command = with_option(part.command, "--of", None)  # how many share a node is Slurm's to decide
    if part.gpus:  # a step sees its own alone
        command = with_option(command, "--device", "cuda:0")
    words = [shlex.quote(word) for word in command]
    if part.kind != "coordinator":
        words[words.index("--connect") + 1] = f'"{connect}"'
    if part.kind == "worker":
        words[words.index("--name") + 1] = f'"{part.name}-$SLURM_PROCID"'
    if part.kind == "coordinator":  # in the batch step, where a signal reaches it
        return ["", f"{' '.join(words)} &", "coordinator=$!"]
    srun = f"srun --het-group={number} --ntasks={part.count} --cpus-per-task={part.threads} --kill-on-bad-exit=0"
    return ["", f"{srun} bash -c {shlex.quote('exec ' + ' '.join(words))} &"]


_END = (
    "",
    "# All of it ends with the coordinator, which tells the others.",
    "trap 'kill -TERM $coordinator' TERM",
    "wait $coordinator",
    "code=$?",
    "while [ $code -gt 128 ] && kill -0 $coordinator 2>/dev/null; do  # that was the signal",
    "    wait $coordinator",
    "    code=$?",
    "done",
    "wait",
    "exit $code",
)
