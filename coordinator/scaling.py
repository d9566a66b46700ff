"""Another number of workers while the cluster is up: who is started or let go, and what is undone if that fails.

Growing is done once all newcomers are ready; if one cannot be, all of them go again. Only then are others let go:
SIGTERM has a worker leave in an orderly way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from coordinator.config import MAX_ALL_WORKERS, MAX_WORKERS, ClusterConfig
from coordinator.launch_plan import ProcessPlan
from coordinator.supervisor import Supervisor
from protocol.errors import ConfigError

READY_S = 600.0
"""Time for newcomers to have read their experts."""
FAILED = ("failed", "quarantined")
"""States of a worker, in the coordinator's report, in which it is of no use."""


def scaled(config: ClusterConfig, counts: Mapping[str, int]) -> ClusterConfig:
    """The same cluster with so many workers of each of these groups. ConfigError for what cannot be, all at once."""
    known = [group.name for group in config.workers]
    problems = [
        f"no group of workers is called {name}; there are {', '.join(known) or 'none'}"
        for name in counts
        if name not in known
    ]
    problems += [
        f"{count} workers called {name} are wanted, 0 to {MAX_WORKERS} are expected"
        for name, count in counts.items()
        if not 0 <= count <= MAX_WORKERS
    ]
    groups = tuple(replace(group, count=counts.get(group.name, group.count)) for group in config.workers)
    total = sum(group.count for group in groups) + len(config.peers)
    if total > MAX_ALL_WORKERS:
        problems.append(f"{total} workers and peers in all are wanted, {MAX_ALL_WORKERS} at most are expected")
    if problems:
        raise ConfigError("\n".join(problems))
    return replace(config, workers=groups)


class Changed(Protocol):
    """What runs the processes (coordinator.launcher.Launcher)."""

    def planned(self, config: ClusterConfig) -> dict[str, ProcessPlan]: ...
    def adopt(self, plan: ProcessPlan) -> None: ...


class Scaling:
    """One change of the number of workers, from its begin to its end; `tick` never waits."""

    def __init__(
        self,
        before: ClusterConfig,
        after: ClusterConfig,
        launcher: Changed,
        supervisor: Supervisor,
        clock: Callable[[], float] = time.monotonic,
        *,
        groups: Collection[str] = (),
    ) -> None:
        """Begin to grow; those of these `groups` that were drained or given up come back, too."""
        self.config = after
        """What is in force once this has ended: `before` again if it failed."""
        self._before = before
        self._launcher = launcher
        self._supervisor = supervisor
        self._clock = clock
        self._deadline = clock() + READY_S
        old, new = launcher.planned(before), launcher.planned(after)
        wished = {
            f"{group.name}-{index}" for group in after.workers if group.name in groups for index in range(group.count)
        }
        gone = {name for name in wished if not supervisor.is_kept(name)}
        self._added = [name for name in new if name not in old or name in gone]
        self._removed = [name for name in old if name not in new and supervisor.is_there(name)]
        self._leaving = False
        self.failed = ""
        """Why it failed; it ends when what was started for it has gone again."""
        self._adopt(after)
        for name in self._added:
            supervisor.add(name)

    def tick(self, report: dict[str, Any] | None) -> bool:
        """Whether it has ended, now that the coordinator's newest report, if there is one, says this."""
        if not self._leaving:
            states = _states(report or {})
            self.failed = self._failure(states)
            if self.failed:
                self.config = self._before
                self._adopt(self._before)
                self._let_go(self._added)
            elif report is not None and all(self._is_ready(name, states) for name in self._added):
                self._let_go(self._removed)
        return self._leaving and not any(
            self._supervisor.is_there(name) for name in (self._added if self.failed else self._removed)
        )

    def _failure(self, states: Mapping[str, str]) -> str:
        for name in self._added:
            if why := self._supervisor.roles[name].given_up:
                return f"{name} is of no use: {why}"
            if states.get(name) in FAILED:
                return f"{name} is of no use: it is {states[name]}"
        if self._added and self._clock() > self._deadline:
            return f"{', '.join(self._added)} not ready within {READY_S:g} s"
        return ""

    def _is_ready(self, name: str, states: Mapping[str, str]) -> bool:
        return self._supervisor.roles[name].state == "running" and states.get(name) == "ready"

    def _let_go(self, names: list[str]) -> None:
        self._leaving = True
        for name in names:
            self._supervisor.let_go(name)

    def _adopt(self, config: ClusterConfig) -> None:
        """What is started from now on is as planned for this: a coordinator that is started again waits for all."""
        for plan in self._launcher.planned(config).values():
            self._launcher.adopt(plan)


def _states(report: Mapping[str, Any]) -> dict[str, str]:
    """By name; the report has those that are gone last, and a newcomer may be called as one of them was."""
    states: dict[str, str] = {}
    for worker in report.get("workers", ()):
        states.setdefault(worker["name"], worker["state"])
    return states
