"""The work of `--dry-run`: see whether it would work, then print the processes that would be started."""

from __future__ import annotations

from pathlib import Path

from coordinator.cli.plan_view import print_plan
from coordinator.config import ClusterConfig
from coordinator.cores import usable_cores
from coordinator.launch_plan import plan_here
from protocol.errors import ConfigError
from protocol.model import Model


def show_plan(config: ClusterConfig) -> None:
    """Print it. ModelError if a file is of no use, ConfigError if workers are given another than the coordinator's."""
    mark = _fingerprint(config.model)
    for group in config.workers:
        if group.model_path is not None and _fingerprint(group.model_path) != mark:
            raise ConfigError(f"{group.model_path}, the model of workers {group.name}, is not that of {config.model}")
    print_plan(plan_here(config, usable_cores()))


def _fingerprint(model: Path) -> str:
    with Model.open(model) as opened:
        return opened.fingerprint
