"""The work of `expertmesh up`: supervise, ask for the state, show it, until somebody wants the cluster to end."""

from __future__ import annotations

import re
import sys
import time
from queue import Empty, SimpleQueue

from coordinator.cli.cluster_view import ClusterView, LiveView, PlainView
from coordinator.client import Client
from coordinator.config import COORDINATOR, ClusterConfig
from coordinator.interrupts import Interrupted, Interrupts
from coordinator.launch_plan import Placed
from coordinator.launcher import Launcher, launched
from coordinator.restarts import RestartPolicy
from coordinator.supervisor import Supervisor
from protocol.shards import ModelFiles

LOOK_S = 0.1
"""How long an exit or a line of a child can go unnoticed."""
ASK_S = 0.5
"""Interval between questions for the state."""


def keep_up(config: ClusterConfig, interrupts: Interrupts, placed: Placed) -> None:
    """Run the cluster, `placed` where it belongs, until a signal, or a client's Stop, ends it.

    ExpertmeshError if it cannot be kept running.
    """
    said: SimpleQueue[str] = SimpleQueue()
    view: ClusterView = LiveView(config) if sys.stdout.isatty() else PlainView(config)
    try:
        with launched(config, interrupts, lambda name, line: said.put(_told(name, line)), placed) as launcher, view:
            view.tell(str(launcher.plan.lookahead))
            _supervise(launcher, view, said)
    except Interrupted as interrupted:
        view.tell(f"stopped by {interrupted}")
    else:
        view.tell("stopped by a client")


def _supervise(launcher: Launcher, view: ClusterView, said: SimpleQueue[str]) -> None:
    """Returns when the coordinator has stopped the cluster in an orderly way."""
    supervisor = Supervisor(launcher, RestartPolicy())
    asked_at = -ASK_S
    changed: str | None = None
    with Client(launcher.plan.listen) as client, ModelFiles.open(launcher.plan.model) as model:
        while launcher.children[COORDINATOR].exit_code() != 0:
            _tell_all(view, _waiting(said))
            _tell_all(view, supervisor.tick())
            if time.monotonic() - asked_at >= ASK_S:
                asked_at = time.monotonic()
                client.ask_status()
                if changed is None and (changed := model.changed()) is not None:
                    view.tell(f"error: {changed}; start again with it whole")
            report = client.poll_status(LOOK_S)
            supervisor.begun = supervisor.begun or (report is not None and report["state"] != "waiting")
            view.show(supervisor.roles.values(), report)


def _tell_all(view: ClusterView, lines: list[str]) -> None:
    for line in lines:
        view.tell(line)


def _told(name: str, line: str) -> str:
    """A line of a log by its process, without date and time: the view has a clock of its own."""
    unstamped = re.sub(r"^([^ ]+: )?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", r"\1", line)
    return f"{name}: {unstamped}"


def _waiting(said: SimpleQueue[str]) -> list[str]:
    lines = []
    while True:
        try:
            lines.append(said.get_nowait())
        except Empty:
            return lines
