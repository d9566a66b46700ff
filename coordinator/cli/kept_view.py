"""A view of a cluster that keeps what it is told."""

from __future__ import annotations

from coordinator.cli.cluster_view import ClusterView
from coordinator.process_logs import LAUNCHER, ProcessLogs, stamped


class KeptView:
    """A view whose notes of the launcher are kept in its log, too."""

    def __init__(self, view: ClusterView, logs: ProcessLogs) -> None:
        self._view = view
        self._logs = logs
        self.tell, self.show = view.tell, view.show
        self._told_failure = False

    def __enter__(self) -> KeptView:
        self._view.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._view.__exit__(*error)

    def note(self, line: str) -> None:
        """Something happened that no process has written of."""
        self._logs.write(LAUNCHER, [stamped(line)])
        self._view.tell(line)
        if self._logs.failed and not self._told_failure:
            self._told_failure = True
            self._view.tell(f"error: lines are not kept: {self._logs.failed}")
