"""The work of `expertmesh up`: supervise, ask for the state, show it, until somebody wants the cluster to end."""

from __future__ import annotations

import sys
import time
from queue import Empty, SimpleQueue

from coordinator.cli.cluster_view import ClusterView, LiveView, PlainView
from coordinator.client import Client
from coordinator.config import ClusterConfig
from coordinator.interrupts import Interrupted, Interrupts
from coordinator.launch_plan import COORDINATOR
from coordinator.launcher import Launcher, launched
from coordinator.restarts import RestartPolicy
from coordinator.supervisor import Supervisor

LOOK_S = 0.1
"""How long an exit or a line of a child can go unnoticed."""
ASK_S = 0.5
"""Interval between questions for the state."""


def keep_up(config: ClusterConfig, interrupts: Interrupts) -> None:
    """Run the cluster until a signal, or a client's Stop, ends it. ExpertmeshError if it cannot be kept running."""
    said: SimpleQueue[str] = SimpleQueue()
    view: ClusterView = LiveView(config) if sys.stdout.isatty() else PlainView(config)
    with view:
        try:
            with launched(config, interrupts, lambda name, line: said.put(f"{name}: {line}")) as launcher:
                _supervise(launcher, view, said)
        except Interrupted as interrupted:
            view.tell(f"stopped by {interrupted}")
        else:
            view.tell("stopped by a client")


def _supervise(launcher: Launcher, view: ClusterView, said: SimpleQueue[str]) -> None:
    """Returns when the coordinator has stopped the cluster in an orderly way."""
    supervisor = Supervisor(launcher, RestartPolicy())
    asked_at = -ASK_S
    with Client(launcher.plan.listen) as client:
        while launcher.children[COORDINATOR].exit_code() != 0:
            for line in [*_waiting(said), *supervisor.tick()]:
                view.tell(line)
            if time.monotonic() - asked_at >= ASK_S:
                asked_at = time.monotonic()
                client.ask_status()
            report = client.poll_status(LOOK_S)
            view.show(supervisor.roles.values(), report)


def _waiting(said: SimpleQueue[str]) -> list[str]:
    lines = []
    while True:
        try:
            lines.append(said.get_nowait())
        except Empty:
            return lines
