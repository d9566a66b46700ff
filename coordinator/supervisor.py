"""Keeping the roles of a cluster running: what ends is told of, and started again after a while, or given up."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.config import COORDINATOR, is_beside
from coordinator.restarts import BAD_SETTING, IN_ORDER, Again, GiveUp, RestartHistory, RestartPolicy, after_exit
from protocol.errors import ExpertmeshError

LEAVE_S = 120.0
"""Time for a process that is let go: others take over what it holds, which they may have to read first."""
TAIL_LINES = 8
"""Of a process that is given up."""


class Process(Protocol):
    """What is watched of a child (coordinator.children.Child)."""

    name: str
    started_at: float

    @property
    def pid(self) -> int: ...
    def exit_code(self) -> int | None: ...
    def ended(self) -> str: ...
    def tail(self, count: int) -> list[str]: ...
    def send(self, number: signal.Signals) -> None: ...


class Starter(Protocol):
    """What starts them (coordinator.launcher.Launcher)."""

    @property
    def children(self) -> Mapping[str, Process]: ...
    def start(self, name: str) -> Process: ...
    def forget(self, name: str) -> None: ...


@dataclass(slots=True, kw_only=True)
class Role:
    """One process of the cluster, through all its lives."""

    name: str
    pid: int
    restarts: int = 0
    history: RestartHistory = field(default_factory=RestartHistory)
    again_at: float | None = None
    """When it is started again; None while it runs or if it is given up."""
    given_up: str = ""
    """Why it is not started again."""
    left: bool = False
    """It left as it was asked to."""
    leave_by: float | None = None
    """It has been let go, and has time until then; None if it is to stay."""

    @property
    def state(self) -> str:
        if self.left:
            return "left"
        if self.leave_by is not None:
            return "leaving"
        return "given up" if self.given_up else "running" if self.again_at is None else "restarting"


class Supervisor:
    """Call `tick` often; it never waits."""

    def __init__(
        self,
        launcher: Starter,
        policy: RestartPolicy,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launcher = launcher
        self._policy = policy
        self._clock = clock
        self.roles = {name: Role(name=name, pid=child.pid) for name, child in launcher.children.items()}
        self.begun = False
        """Whether the cluster has been ready once: it waits for everybody, so until then nobody can be missing."""

    def tick(self) -> list[str]:
        """Deal with exits and with restarts that are due; returns what happened, in lines for people.

        ExpertmeshError if the coordinator cannot be kept running, or a worker or peer before the cluster has
        begun: without it the rest is of no use.
        """
        return [line for role in list(self.roles.values()) for line in self._look_after(role)]

    def add(self, name: str) -> None:
        """Start one process more, and look after it from now on."""
        self.roles[name] = Role(name=name, pid=self._launcher.start(name).pid)

    def is_there(self, name: str) -> bool:
        """Whether it is looked after: no longer, once it has been let go and is gone."""
        return name in self.roles

    def is_kept(self, name: str) -> bool:
        """Whether it is looked after and runs, or is started again: not once it has been drained or given up."""
        return name in self.roles and not self.roles[name].given_up

    def let_go(self, name: str) -> None:
        """Have it leave, in good order if it does so within LEAVE_S; it is not started again."""
        self.roles[name].leave_by = self._clock() + LEAVE_S
        child = self._launcher.children[name]
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process takes the first only when it goes on
            child.send(number)

    def _look_after(self, role: Role) -> list[str]:
        if role.leave_by is not None:
            return self._see_off(role, role.leave_by)
        if role.given_up:
            return []
        now = self._clock()
        if role.again_at is not None:
            return self._restart(role) if now >= role.again_at else []
        child = self._launcher.children[role.name]
        code = child.exit_code()
        if code is None or (role.name == COORDINATOR and code == IN_ORDER):  # which is the end of it all
            return []
        lines = [f"{role.name} (process {child.pid}) {child.ended()}"]
        match after_exit(code, now - child.started_at, role.history, self._policy):
            case Again(delay_s=delay_s, history=history):
                role.again_at, role.history = now + delay_s, history
            case GiveUp(why=why):
                if role.name == COORDINATOR or not (self.begun or is_beside(role.name) or code == IN_ORDER):
                    raise ExpertmeshError(
                        "\n".join([f"{lines[0]}; it is not started again: {why}", *_tail(child, code)])
                    )
                role.given_up, role.left = why, code == IN_ORDER
                lines += [f"{role.name} is not started again: {why}", *_tail(child, code)]
        return lines

    def _see_off(self, role: Role, leave_by: float) -> list[str]:
        child = self._launcher.children[role.name]
        if child.exit_code() is None:
            if self._clock() >= leave_by:
                child.send(signal.SIGKILL)
            return []
        del self.roles[role.name]
        self._launcher.forget(role.name)
        return [f"{role.name} (process {child.pid}) has left"]

    def _restart(self, role: Role) -> list[str]:
        role.again_at = None
        role.restarts += 1
        role.pid = self._launcher.start(role.name).pid
        return [f"{role.name} started again (process {role.pid})"]


def _tail(child: Process, code: int) -> list[str]:
    """What it wrote last, where no error line of its own says all there is to know."""
    return [] if code in (IN_ORDER, BAD_SETTING) else [f"{child.name} wrote: {line}" for line in child.tail(TAIL_LINES)]
