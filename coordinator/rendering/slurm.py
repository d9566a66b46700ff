"""Slurm: a batch script. Without keys a cluster stays on one node, with them its parts are a heterogeneous job."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from coordinator.config import ClusterConfig
from coordinator.rendering.parts import Part, everywhere, parts, with_option, without_givers
from coordinator.restarts import BAD_SETTING, IN_ORDER
from protocol.errors import ConfigError

HEAD = "$EXPERTMESH_HEAD"
"""The node of the coordinator, in the script."""
WARNED_S = 60
"""Before its time is over the job hears SIGTERM."""
AGAIN_S = 5
"""After so long what failed is started again."""
LEAVE_S = 30
"""Time for tasks to end when the coordinator has."""


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
    without_givers(config, "nodes")
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
    here = [part for part in made if part.kind in ("coordinator", "weights")]  # at neighbouring ports of one node
    tasks = [part for part in made if part not in here]
    coordinator, *beside = (" ".join(_words(part, connect)) for part in here)
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=expertmesh-{cluster}",
        f"#SBATCH --output=expertmesh-{cluster}-%j.log",
        f"#SBATCH --signal=B:TERM@{WARNED_S}",
        *_needs(1, sum(part.threads for part in here), here[0].gpus),
    ]
    for part in tasks:
        lines += ["#SBATCH hetjob", *_needs(part.count, part.threads, part.gpus)]
    lines += ["", *_BEGIN]
    for words in beside:
        lines += ["", f"keep {words} &", "beside+=($!)"]
    for number, part in enumerate(tasks, start=1):
        lines += ["", *_step(number, part, connect)]
    return "\n".join([*lines, "", f"keep {coordinator}", *_END]) + "\n"


def _needs(tasks: int, threads: int, gpus: int) -> Iterator[str]:
    yield f"#SBATCH --ntasks={tasks}"
    yield f"#SBATCH --cpus-per-task={threads}"
    if gpus:
        yield f"#SBATCH --gpus-per-task={gpus}"


def _step(number: int, part: Part, connect: str) -> list[str]:
    """Lines that start all processes of a part in the background."""
    srun = f"srun --het-group={number} --ntasks={part.count} --cpus-per-task={part.threads} --kill-on-bad-exit=0"
    return [f"{srun} bash -c {shlex.quote('keep ' + ' '.join(_words(part, connect)))} &", "tasks+=($!)"]


def _words(part: Part, connect: str) -> list[str]:
    """Its command, as a shell takes it."""
    command = with_option(part.command, "--of", None)  # how many share a node is Slurm's to decide
    if part.gpus:  # a step sees its own alone
        command = with_option(command, "--device", "cuda:0")
    words = [shlex.quote(word) for word in command]
    if "--connect" in words:
        words[words.index("--connect") + 1] = f'"{connect}"'
    if part.kind == "worker":
        words[words.index("--name") + 1] = f'"{part.name}-$SLURM_PROCID"'
    return words


_BEGIN = (
    "set -u",
    "export EXPERTMESH_HEAD=$(hostname)  # the batch script runs where the coordinator does",
    "beside=()",
    "tasks=()",
    "",
    "# Runs a process, and starts it again when it fails; passes SIGTERM on to it, and returns what it ended with.",
    f"# {IN_ORDER} is an orderly end, {BAD_SETTING} something that starting again does not help.",
    "keep() {",
    "    local ending= code=0 pid=",
    "    trap 'ending=1; kill -TERM $pid 2>/dev/null' TERM",
    '    while [ -z "$ending" ]; do',
    '        "$@" &',
    "        pid=$!",
    "        wait $pid",
    "        code=$?",
    "        while [ $code -gt 128 ] && kill -0 $pid 2>/dev/null; do  # that was the signal",
    "            wait $pid",
    "            code=$?",
    "        done",
    f"        if [ $code = {IN_ORDER} ] || [ $code = {BAD_SETTING} ] || [ $ending ]; then break; fi",
    '        echo "${*:4:1} exited with code $code" >&2',
    f"        sleep {AGAIN_S} &",
    "        pid=$!",
    "        wait $pid",
    "    done",
    "    trap - TERM",
    "    return $code",
    "}",
    "export -f keep",
)
_END = (
    "code=$?",
    "",
    "# All of it ends with the coordinator, which tells whoever listens to it.",
    "kill -TERM ${beside[@]} 2>/dev/null",
    f"for second in {{1..{LEAVE_S}}}; do",
    "    kill -0 ${tasks[@]} 2>/dev/null || break",
    "    sleep 1",
    "done",
    "kill -TERM ${tasks[@]} 2>/dev/null",
    "wait",
    "exit $code",
)
