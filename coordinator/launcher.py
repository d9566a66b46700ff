"""Starting the local processes of a cluster, noticing their exits, and stopping them in order, all under deadlines."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import native
from coordinator.children import Child, OnLine, end_all, ignore_line, wait_for_all
from coordinator.config import COORDINATOR, ClusterConfig, gives_weights
from coordinator.cores import CoreLeases, usable_cores
from coordinator.host_report import is_looked_at
from coordinator.hosts import Host
from coordinator.interrupts import Interrupts
from coordinator.launch_plan import TUNNEL, LaunchPlan, Placed, ProcessPlan, placed_here, plan_here, resolve
from coordinator.leases import endpoints_leased
from coordinator.on_ray.plan import RAY
from protocol.errors import ConfigError, ExpertmeshError

log = logging.getLogger(__name__)

ASKED_S = 3.0
"""Time for an orderly end of the cluster once its coordinator is asked for it."""
TERM_S = 2.0
"""Time for what is left to end after SIGTERM."""
KILL_S = 5.0
"""Time for the kernel to end a process after SIGKILL."""


class Launcher:
    """The processes of one plan. A context manager: it starts them all, and stops whatever runs at the end."""

    def __init__(self, plan: LaunchPlan, interrupts: Interrupts, on_line: OnLine = ignore_line) -> None:
        self.plan = plan
        self.children: dict[str, Child] = {}
        self._interrupts = interrupts
        self._on_line = on_line
        self._plans = {process.name: process for process in plan.processes}
        self._leases: dict[str, CoreLeases] = {}

    def __enter__(self) -> Launcher:
        try:
            for name in self._plans:
                self.start(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self, name: str) -> Child:
        """Start the process of that name, for the first time or again. Only from the main thread (see children)."""
        plan = self._plans[name]
        if name == COORDINATOR and name in self.children:
            plan = replace(plan, command=(*plan.command, "--resume"))
        try:
            child = Child(plan, self._on_line)
        except OSError as error:
            raise ExpertmeshError(f"{name} cannot be started: {error}") from None
        self.children[name] = child
        log.info("%s started, process %d", name, child.pid)
        return child

    def planned(self, config: ClusterConfig) -> dict[str, ProcessPlan]:
        """The processes of another cluster in this one's place, by name; those that are known stay on their cores."""
        if RAY in self._plans:
            raise ConfigError("Ray has the workers of this cluster: give their group another count, and start again")
        hosts = {plan.host for plan in self._plans.values()}
        for part in config.remote:
            if part.host not in hosts:
                raise ConfigError(
                    f"nothing of this cluster has run on {part.host} so far, so it was not looked at: give {part.name} "
                    "a count in the file and start again"
                )
        planned = resolve(config, python=sys.executable, cores=(), lookahead=self.plan.lookahead)
        kept = {name: plan for name, plan in self._plans.items() if name.startswith(TUNNEL)}
        return kept | {plan.name: replace(plan, cores=self._cores(plan)) for plan in planned.processes}

    def adopt(self, plan: ProcessPlan) -> None:
        """Start the process of that name so from now on; a new worker of this machine gets cores, if there are some."""
        if plan.name not in self._plans and plan.host is None:
            leases = self._leases.setdefault(plan.name, CoreLeases())
            plan = replace(plan, cores=leases.take(plan.threads, usable_cores()))
        self._plans[plan.name] = plan

    def forget(self, name: str) -> None:
        """Its process has left for good."""
        del self.children[name]

    def _cores(self, plan: ProcessPlan) -> tuple[int, ...]:
        known = self._plans.get(plan.name)
        return known.cores if known is not None else ()

    def ended(self) -> list[Child]:
        """The processes that are not running any more."""
        return [child for child in self.children.values() if child.exit_code() is not None]

    def stop(self) -> None:
        """Ask the coordinator to stop the cluster, then end by signals what is left; returns when nothing runs."""
        self._interrupts.stopping()
        coordinator = self.children.get(COORDINATOR)
        if coordinator is not None and coordinator.exit_code() is None:
            self._ask(coordinator)
        left = end_all(list(self.children.values()), 0.0 if self._interrupts.hurried else TERM_S, KILL_S)
        for child in left:
            log.error("%s, process %d, does not end", child.name, child.pid)
        for leases in self._leases.values():
            leases.give_back()

    def _ask(self, coordinator: Child) -> None:
        """SIGTERM lets a coordinator do what Stop does, and reaches no other one, whoever listens at the endpoint."""
        coordinator.send(signal.SIGTERM)
        for name, child in self.children.items():
            if gives_weights(name):  # and hears nobody but workers
                child.send(signal.SIGTERM)
        deadline = time.monotonic() + ASKED_S
        running = list(self.children.values())
        while running and time.monotonic() < deadline and not self._interrupts.hurried:
            running = wait_for_all(running, 0.05)
            if coordinator not in running:
                break  # the workers have been told, or never will be
        if running:
            wait_for_all(running, min(0.5, deadline - time.monotonic()))


@contextmanager
def launched(
    config: ClusterConfig,
    interrupts: Interrupts,
    on_line: OnLine = ignore_line,
    placed: Placed = placed_here,
    ask: Callable[[], Sequence[str]] = tuple,
) -> Iterator[Launcher]:
    """The cluster of `config`, started from this machine; its workers on cores that no other launcher has taken.

    `placed` may have some of its processes run elsewhere, and `ask` tells what is wrong there.
    ConfigError, with all of it, if an endpoint is in use, or a machine cannot do its part; ImportError, when this
    module is loaded, if its kernels cannot be used here.
    """
    log.debug("kernels: %s", native.isa())
    with endpoints_leased(*config.endpoints, *config.gives_here) as taken, CoreLeases() as leases:
        cores = leases.take(config.worker_threads, usable_cores())
        tunnels = tunnels_for(left_here(config, placed), taken, ask())
        with Launcher(placed(plan_here(config, cores, tunnels)), interrupts, on_line) as launcher:
            yield launcher


def left_here(config: ClusterConfig, placed: Placed) -> ClusterConfig:
    """The same cluster without those workers of this machine that are `placed` elsewhere."""
    if placed is placed_here:
        return config
    left = {process.name for process in placed(plan_here(config)).processes}
    workers = (group for group in config.workers if group.host is not None or f"{group.name}-0" in left)
    return replace(config, workers=tuple(workers))


def tunnels_for(
    config: ClusterConfig, taken: Mapping[str, str] | None = None, found: Sequence[str] = ()
) -> tuple[Host, ...]:
    """The machines of `config` that need a tunnel. ConfigError with all that keeps any, or this one, from its part.

    `taken` are endpoints that cannot be had, and why; `found` is what else is wrong already.
    """
    wrong = [why for why in (*(taken or {}).values(), *found) if why]
    if config.remote or any(is_looked_at(group) for group in config.workers):
        from coordinator.preflight import look_at_all  # it opens models, for which others need not wait

        looked = look_at_all(config, tuple(taken or ()))
        wrong += looked.problems
        tunnelled = looked.tunnelled
    else:
        tunnelled = ()
    if wrong:
        raise ConfigError("\n".join(dict.fromkeys(wrong)))
    return tunnelled
