"""What a launcher does about the wishes that come to its desk: one change of the workers at a time, or the end."""

from __future__ import annotations

from typing import Any

from coordinator.config import ClusterConfig
from coordinator.launcher import Launcher
from coordinator.launcher_desk import LauncherDesk, Scale, TakeDown, Visitor
from coordinator.scaling import Scaling, scaled
from coordinator.supervisor import Supervisor
from protocol.errors import ConfigError


class Granting:
    """Call `tick` often; it never waits."""

    def __init__(self, desk: LauncherDesk, launcher: Launcher, supervisor: Supervisor, config: ClusterConfig) -> None:
        self.config = config
        """The cluster as it is wished for now."""
        self.down: Visitor | None = None
        """Who wants the cluster to end, and waits for that."""
        self._desk = desk
        self._launcher = launcher
        self._supervisor = supervisor
        self._scaling: tuple[Visitor, Scaling] | None = None

    def tick(self, report: dict[str, Any] | None) -> list[str]:
        """Hear wishes and go on with what is under way; returns what happened, in lines for people.

        `report` is the coordinator's newest, None if none came since the last call.
        """
        lines = []
        for visitor, wish in self._desk.wishes():
            match wish:
                case TakeDown():
                    self.down = visitor
                case Scale():
                    try:
                        lines += self._begin(visitor, wish)
                    except ConfigError as error:
                        visitor.finish(str(error))
        return lines + self._go_on(report)

    def _begin(self, visitor: Visitor, wish: Scale) -> list[str]:
        if self._scaling is not None:
            raise ConfigError("the number of workers is just being changed: wait until that is done")
        if not self._supervisor.begun:
            raise ConfigError("this cluster has not been ready yet: wait until it is")
        after = scaled(self.config, wish.counts)
        scaling = Scaling(self.config, after, self._launcher, self._supervisor, groups=wish.counts)
        self._scaling = visitor, scaling
        wanted = ", ".join(f"{name} {count}" for name, count in wish.counts.items())
        return self._told(visitor, f"the number of workers changes: {wanted}")

    def _go_on(self, report: dict[str, Any] | None) -> list[str]:
        if self._scaling is None:
            return []
        visitor, scaling = self._scaling
        if not scaling.tick(report):
            return []
        self.config = scaling.config
        self._scaling = None
        if not scaling.failed:
            lines = self._told(visitor, f"there are {_counts(self.config)} now")
            visitor.finish()
            return lines
        visitor.finish(f"{scaling.failed}; there are {_counts(self.config)} again")
        return [f"error: {scaling.failed}; there are {_counts(self.config)} again"]

    def _told(self, visitor: Visitor, line: str) -> list[str]:
        visitor.tell(line)
        return [line]


def _counts(config: ClusterConfig) -> str:
    return ", ".join(f"{group.count} {group.name}" for group in config.workers)
