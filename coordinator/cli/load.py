"""What the table of a running cluster says of each role, worked out from the coordinator's reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.supervisor import Role


class Load:
    """The newest report and the one before it: what happened in between is the load."""

    def __init__(self) -> None:
        self.report: dict[str, Any] | None = None
        self.taken_at = float("-inf")
        self._busy: dict[tuple[str, int], float] = {}
        self._shares: dict[tuple[str, int], float] = {}

    def take(self, report: dict[str, Any] | None, now: float) -> None:
        """Remember a report that came at `now` (seconds of any clock)."""
        if report is None:
            return
        busy = {_life(worker): float(worker["busy_s"]) for worker in _reported(report)}
        passed = now - self.taken_at
        self._shares = {
            life: (seconds - self._busy[life]) / passed for life, seconds in busy.items() if life in self._busy
        }
        self.report, self.taken_at, self._busy = report, now, busy

    def busy_share(self, worker: dict[str, Any]) -> float | None:
        """Part of the time between the last two reports that a worker spent in its kernels, or None if unknown."""
        share = self._shares.get(_life(worker))
        return None if share is None else min(1.0, max(0.0, share))


def worker_rows(roles: Iterable[Role], report: dict[str, Any] | None, load: Load) -> list[tuple[str, ...]]:
    """Cells of role, state, process, restarts, experts, calls, busy, beat, memory; workers started elsewhere last."""
    workers = {worker["name"]: worker for worker in _reported(report or {})}
    rows = [(role.name, *_cells(role, workers.pop(role.name, None), load)) for role in roles]
    return rows + [(name, *_cells(None, worker, load)) for name, worker in workers.items()]


def _cells(role: Role | None, worker: dict[str, Any] | None, load: Load) -> tuple[str, ...]:
    known = worker or {}
    state = role.state if role is not None and (not known or role.state != "running") else known["state"]
    process = str(role.pid if role is not None else known["pid"])
    restarts = str(role.restarts) if role is not None else ""
    if worker is None:
        return (state, process, restarts, "", "", "", "", "")
    share = load.busy_share(worker)
    return (
        state,
        process,
        restarts,
        str(worker["experts"]),
        str(worker["calls"]),
        "" if share is None else f"{share:.0%}",
        "" if worker["beat_age_s"] is None else f"{worker['beat_age_s']:.1f} s",
        "" if worker["resident_bytes"] is None else f"{worker['resident_bytes'] / 2**20:.0f} MiB",
    )


def _reported(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Workers, and lookahead processes as if they were some: their inputs are calls, and they hold nothing."""
    beside = [{**one, "state": "ready", "experts": "", "calls": one["inputs"]} for one in report.get("lookahead", ())]
    return [*report.get("workers", ()), *beside]


def _life(worker: dict[str, Any]) -> tuple[str, int]:
    return worker["name"], worker["pid"]
