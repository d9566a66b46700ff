"""How a running cluster looks: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coordinator.cli.headline import headline
from coordinator.cli.load import Load, worker_rows
from coordinator.cli.output import put
from coordinator.cli.wording import harmless
from coordinator.config import ClusterConfig
from coordinator.supervisor import Role
from protocol.wording import counted

FRESH_S = 3.0
"""A report older than this says nothing about now."""
HEADINGS = ("role", "state", "process", "restarts", "experts", "calls", "busy", "beat", "memory", "source (read)")
"""Of the cells of `worker_rows`."""
WORDS = ("role", "state", "source (read)")
SPARE = ("process", "restarts", "beat")
"""What is left out first where there is no room: the lines above tell the first two when something happens."""
PADDING = 2


class ClusterView(Protocol):
    """What shows a cluster; a context manager."""

    def __enter__(self) -> ClusterView: ...
    def __exit__(self, *error: object) -> None: ...
    def tell(self, line: str) -> None:
        """Something happened."""

    def show(self, roles: Iterable[Role], report: dict[str, Any] | None) -> None:
        """The state now; `report` is the coordinator's newest, None if none came since the last call."""


class LiveView:
    """A table that is drawn again and again, below the lines of what happened."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._load = Load()

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def tell(self, line: str) -> None:
        self._console.print(Text(_stamped(line)))

    def show(self, roles: Iterable[Role], report: dict[str, Any] | None) -> None:
        self._load.take(report, time.monotonic())
        width = self._console.width
        self._live.update(cluster_table(self._config, list(roles), self._load, time.monotonic(), width), refresh=True)


class PlainView:
    """A line for each thing that happens, and for each change of the cluster's state."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._state = ""

    def __enter__(self) -> PlainView:
        workers = sum(group.count for group in self._config.workers)
        started = [f"a coordinator at {self._config.coordinator.listen}", counted(workers, "worker")]
        if self._config.peers:
            started.append(counted(len(self._config.peers), "peer"))
        self.tell(f"starting {', '.join(started[:-1])} and {started[-1]}")
        return self

    def __exit__(self, *error: object) -> None:
        return

    def tell(self, line: str) -> None:
        put(f"{_stamped(line)}\n")

    def show(self, roles: Iterable[Role], report: dict[str, Any] | None) -> None:
        if report is None:
            return
        joined = [worker for worker in report["workers"] if worker["state"] == "ready"]
        experts = ", ".join(f"{worker['name']} {worker['experts']}" for worker in joined)
        state = "waiting for workers" if report["state"] == "waiting" else "ready"
        hold = f"{counted(len(joined), 'worker')} hold{'s' * (len(joined) == 1)} experts"
        line = f"{state}: {hold}" + (f" ({experts})" if experts else "")
        if line != self._state:
            self._state = line
            self.tell(line)


def cluster_table(config: ClusterConfig, roles: list[Role], load: Load, now: float, width: int) -> Group:
    """The state of every role, and what each worker holds and does; without SPARE columns where `width` is short."""
    report = load.report if now - load.taken_at <= FRESH_S else None
    rows = [[harmless(cell) for cell in row] for row in worker_rows(roles, report, load)]
    columns = dict(zip(HEADINGS, zip(*rows, strict=True) if rows else [()] * len(HEADINGS), strict=True))
    for heading in SPARE:
        if _width(columns) > width:
            del columns[heading]
    table = Table(box=None, padding=(0, PADDING, 0, 0), pad_edge=False)
    for heading in columns:
        table.add_column(heading, justify="left" if heading in WORDS else "right")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return Group(Text(harmless(_headline(config, report)), style="bold"), table)


def _width(columns: dict[str, tuple[str, ...]]) -> int:
    return sum(max(map(cell_len, (heading, *cells))) + PADDING for heading, cells in columns.items()) - PADDING


def _headline(config: ClusterConfig, report: dict[str, Any] | None) -> str:
    said = ["no word of the coordinator"] if report is None else headline(report)
    return f"{config.model.name} at {config.coordinator.listen}: {', '.join(said)}"


def _stamped(line: str) -> str:
    return f"{time.strftime('%H:%M:%S')} {harmless(line)}"
