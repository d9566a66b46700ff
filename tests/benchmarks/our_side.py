"""Our own side of a comparison: a cluster that stays up and is asked as any client asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowd import Answers, Crowd
from sides import ASK_S, READY_S, Prompts, Timing

from coordinator.children import OnLine, ignore_line
from coordinator.config import ClusterConfig
from coordinator.cores import usable_cores
from coordinator.guard import Guard
from coordinator.interrupts import Interrupts
from coordinator.launch_plan import LaunchPlan, plan_here
from coordinator.launcher import Launcher
from coordinator.private_cluster import private_cluster
from protocol.errors import ExpertmeshError
from protocol.wording import counted


class OurSide:
    """A running cluster and its client."""

    program = "expertmesh"

    def __init__(self, config: ClusterConfig, launcher: Launcher, client: Crowd, label: str) -> None:
        self.label = label
        """Tells it from others that are set up in the same way."""
        self.launcher = launcher
        self._config = config
        self._client = client
        self._watch = Guard(launcher, client, self._lost)

    @property
    def name(self) -> str:
        """See sides.Side."""
        coordinator = counted(self._config.coordinator.threads, "thread")
        (group,) = self._config.workers
        file = f", {self.label}" if self.label else ""
        if not group.count:
            return f"no workers, {coordinator}{file}"
        workers = f"{counted(group.count, 'worker')} of {counted(group.threads, 'thread')}"
        return f"{workers}, coordinator of {coordinator}{file}"

    @property
    def workers(self) -> int:
        """How many there are."""
        return sum(group.count for group in self._config.workers)

    @property
    def threads(self) -> int:
        """See sides.Side. A coordinator with workers mostly waits while they compute."""
        return max(self._config.coordinator.threads, self._config.worker_threads)

    def ready(self) -> None:
        """Wait until all workers compute."""
        self._client.greet(READY_S, self._watch)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            status = self._client.status(1.0, self._watch)
            if status is not None and status["state"] != "waiting":
                return
        raise ExpertmeshError(f"{self.name}: not ready within {READY_S:g} s")

    def ask(self, prompts: Prompts, tokens: int) -> Timing:
        """See sides.Side. One answer is timed by the coordinator, several by this client."""
        answers = Answers(prompts, tokens)
        deadline = time.monotonic() + ASK_S
        for event in self._client.answers(prompts, tokens, self._watch):
            if time.monotonic() > deadline:
                raise ExpertmeshError(f"{self.name}: {answers.told} of {answers.wanted} tokens within {ASK_S:g} s")
            answers.take(event)
        return answers.timing(self._late(answers.reports))

    def status(self) -> Mapping[str, Any]:
        """The coordinator's report now."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if (status := self._client.status(1.0, self._watch)) is not None:
                return status
        raise ExpertmeshError(f"{self.name}: no state within {READY_S:g} s")

    def pids(self) -> list[int]:
        """See sides.Side."""
        return [child.pid for child in self.launcher.children.values()]

    def _late(self, reports: Sequence[Mapping[str, Any]]) -> str:
        """What must be said of an answer if workers should have computed all of it."""
        local = max(int(report["local_entries"]) for report in reports) if self._config.worker_threads else 0
        return f"{local} experts' rows computed by the coordinator, since a worker was late" if local else ""

    def _lost(self, what: str) -> None:
        raise ExpertmeshError(what)  # with one worker less it is not what was to be measured


@contextmanager
def our_side(
    model: Path,
    interrupts: Interrupts,
    *,
    workers: int,
    threads: int,
    label: str = "",
    changed: Callable[[LaunchPlan], LaunchPlan] = lambda plan: plan,
    on_line: OnLine = ignore_line,
) -> Iterator[OurSide]:
    """A cluster that is ready, shared out as by `expertmesh generate --workers --threads`.

    The workers of all such clusters are bound to the same cores, since only one cluster is asked at a time. `label` is
    added to its name; `changed` may have other processes started; `on_line` hears what they say.
    """
    with side_of(
        private_cluster(model, workers=workers, threads=threads),
        interrupts,
        label=label,
        changed=changed,
        on_line=on_line,
    ) as side:
        yield side


@contextmanager
def side_of(
    config: ClusterConfig,
    interrupts: Interrupts,
    *,
    label: str = "",
    changed: Callable[[LaunchPlan], LaunchPlan] = lambda plan: plan,
    on_line: OnLine = ignore_line,
) -> Iterator[OurSide]:
    """The cluster of a configuration, when it is ready."""
    plan = changed(plan_here(config, usable_cores()))
    with Launcher(plan, interrupts, on_line) as launcher, Crowd(config.coordinator.listen) as client:
        side = OurSide(config, launcher, client, label)
        side.ready()
        yield side
