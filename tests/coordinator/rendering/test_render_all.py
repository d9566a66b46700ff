"""Whatever the launcher would start is started by every form, as often."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from rendered import KEYS, PYTHON, fetching_cluster

from coordinator.config import ClusterConfig
from coordinator.launch_plan import resolve
from coordinator.lookahead_choice import LookaheadChoice
from coordinator.rendering.kubernetes import Around, manifests
from coordinator.rendering.parts import supervised
from coordinator.rendering.slurm import script
from coordinator.rendering.systemd import units

LOOKAHEAD = LookaheadChoice(on=True, reason="as configured")
MODULE = re.compile(r"-P -m ([a-z_.]+)")


def of_systemd(config: ClusterConfig) -> Counter[str]:
    plan = supervised(config, python=PYTHON, lookahead=LOOKAHEAD)
    return counted(units("home", plan.processes, user="nobody").values())


def of_slurm(config: ClusterConfig) -> Counter[str]:
    """Each step has a line, with how many tasks of it there are."""
    made: Counter[str] = Counter()
    for line in script("home", config, Path("x"), python=PYTHON).splitlines():
        tasks = re.search(r"--ntasks=([0-9]+) .* bash ", line)
        for module in MODULE.findall(line):
            made[module] += int(tasks[1]) if tasks else 1
    return made


def of_kubernetes(config: ClusterConfig) -> Counter[str]:
    made: Counter[str] = Counter()
    for one in manifests("home", config, Around(image="x", claim="models")):
        if one["kind"] != "Service":
            for container in one["spec"]["template"]["spec"]["containers"]:
                made[container["command"][3]] += one["spec"]["replicas"]
    return made


def counted(texts: Iterable[str]) -> Counter[str]:
    return Counter(module for text in texts for module in MODULE.findall(text))


@pytest.mark.parametrize("form", [of_systemd, of_slurm, of_kubernetes])
def test_every_process_is_there(form: object) -> None:
    config = fetching_cluster(KEYS)
    commands = (process.command for process in resolve(config, python=PYTHON, cores=(), lookahead=LOOKAHEAD).processes)
    wanted = counted(map(shlex.join, commands))
    assert wanted["expert_worker.weights.main"] == 1
    assert callable(form)
    assert form(config) == wanted


def test_on_one_machine_what_gives_from_a_cache_is_there_too() -> None:
    config = fetching_cluster(give="tcp://127.0.0.1:7700")
    assert of_systemd(config) == of_kubernetes(config)
    assert of_systemd(config)["expert_worker.weights.main"] == 2
