"""The work of `expertmesh up`: supervise, ask for the state, show it, until somebody wants the cluster to end."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from coordinator.cli.cluster_view import ClusterView, LiveView, PlainView
from coordinator.cli.kept_view import KeptView
from coordinator.client import Client
from coordinator.config import COORDINATOR, ClusterConfig
from coordinator.granting import Granting
from coordinator.interrupts import Interrupted, Interrupts
from coordinator.launch_plan import Placed
from coordinator.launcher import Launcher, launched
from coordinator.launcher_desk import LauncherDesk, Visitor
from coordinator.process_logs import LAUNCHER, ProcessLogs, default_folder, stamped
from coordinator.restarts import RestartPolicy
from coordinator.supervisor import Supervisor
from protocol.errors import ExpertmeshError
from protocol.keys import dial_keys
from protocol.shards import ModelFiles

LOOK_S = 0.1
"""How long an exit or a line of a child can go unnoticed."""
ASK_S = 0.5
"""Interval between questions for the state."""


def keep_up(
    config: ClusterConfig, interrupts: Interrupts, placed: Placed, ask: Callable[[], Sequence[str]] = tuple
) -> None:
    """Run the cluster, `placed` where it belongs, until a signal, or a client's Stop, ends it.

    `ask` tells what is wrong where it is placed.
    ExpertmeshError if it cannot be kept running.
    """
    said: SimpleQueue[str] = SimpleQueue()
    shown: ClusterView = LiveView(config) if sys.stdout.isatty() else PlainView(config)
    with ProcessLogs(config.launch.logs or default_folder(config.coordinator.listen)) as logs:

        def on_line(name: str, line: str) -> None:
            logs.write(name, [line])
            said.put(_told(name, line))

        view = KeptView(shown, logs)
        down = None
        try:
            with launched(config, interrupts, on_line, placed, ask) as launcher, LauncherDesk() as desk, view:
                view.note(f"logs are in {logs.folder}")
                view.note(str(launcher.plan.lookahead))
                desk.open(launcher.plan.listen)
                down = _supervise(config, launcher, desk, view, said)
        except Interrupted as interrupted:
            view.note(f"stopped by {interrupted}")
        except ExpertmeshError as error:
            logs.write(LAUNCHER, [stamped(f"error: {error}")])
            raise
        else:
            view.note("stopped by a client" if down is None else "stopped by `expertmesh down`")
        if down is not None:
            down.finish()


def _supervise(
    config: ClusterConfig, launcher: Launcher, desk: LauncherDesk, view: KeptView, said: SimpleQueue[str]
) -> Visitor | None:
    """Returns when the coordinator has stopped the cluster in an orderly way; or who wants the launcher to do that."""
    supervisor = Supervisor(launcher, RestartPolicy())
    granting = Granting(desk, launcher, supervisor, config)
    asked_at = -ASK_S
    changed: str | None = None
    keys = dial_keys(launcher.plan.keys)
    with Client(launcher.plan.listen, keys=keys) as client, ModelFiles.open(launcher.plan.model) as model:
        while launcher.children[COORDINATOR].exit_code() != 0:
            for line in _waiting(said):
                view.tell(line)
            for line in supervisor.tick():
                view.note(line)
            if time.monotonic() - asked_at >= ASK_S:
                asked_at = time.monotonic()
                client.ask_status()
                if changed is None and (changed := model.changed()) is not None:
                    view.note(f"error: {changed}; start again with it whole")
            report = client.poll_status(LOOK_S)
            supervisor.begun = supervisor.begun or (report is not None and report["state"] != "waiting")
            for line in granting.tick(report):
                view.note(line)
            if granting.down is not None:
                return granting.down
            view.show(supervisor.roles.values(), report)
    return None


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
