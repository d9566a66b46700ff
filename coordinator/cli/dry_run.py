"""The work of `--dry-run`: see whether it would work, then print the processes that would be started."""

from __future__ import annotations

from pathlib import Path

from coordinator.answering import prompt_ids_of
from coordinator.cli.output import put
from coordinator.cli.plan_view import print_plan
from coordinator.config import ClusterConfig
from coordinator.cores import usable_cores
from coordinator.launch_plan import Placed, placed_here, plan_here
from coordinator.launcher import left_here, tunnels_for
from coordinator.leases import endpoints_leased
from coordinator.question import Question
from coordinator.tokenizer import Tokenizer
from protocol.errors import ConfigError
from protocol.layout import check_dense
from protocol.model import Model


def show_plan(
    config: ClusterConfig,
    question: Question | None = None,
    *,
    shared: bool = False,
    placed: Placed = placed_here,
) -> None:
    """Print it, `placed` where it belongs; with `shared` the cluster is up already, so that is nothing.

    ModelError if a file is of no use, ConfigError if workers are given another than the coordinator's, RequestError if
    the model cannot be asked the question.
    """
    mark = _checked(config.model, question)
    if shared:
        put(f"the cluster that is up at {config.coordinator.listen} would be asked, and nothing started\n")
        return
    for group in config.workers:
        if group.host is None:
            _check_copy(group.model_path, f"workers {group.name}", mark, config.model)
    for peer in config.peers:
        if peer.host is None:
            _check_copy(peer.model_path, f"peer {peer.name}", mark, config.model)
    with endpoints_leased(*config.endpoints, *config.gives_here) as taken:
        tunnels = tunnels_for(left_here(config, placed), taken)
    print_plan(placed(plan_here(config, usable_cores(), tunnels)))


def _checked(path: Path, question: Question | None) -> str:
    """The fingerprint of a model that can be run, and, if there is a question, asked."""
    with Model.open(path) as model:
        check_dense(model.files, model.geometry)
        if question is not None:
            prompt_ids_of(question, Tokenizer.of(model.files.metadata), model.geometry)
        return model.fingerprint


def _check_copy(copy: Path | None, whose: str, mark: str, model: Path) -> None:
    if copy is not None and _fingerprint(copy) != mark:
        raise ConfigError(f"{copy}, the model of {whose}, is not that of {model}")


def _fingerprint(model: Path) -> str:
    with Model.open(model) as opened:
        return opened.fingerprint
