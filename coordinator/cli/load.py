"""What the table of a running cluster says of each role, worked out from the coordinator's reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.cli.tier_figures import Tiers
from coordinator.cli.wording import percent
from coordinator.supervisor import Role
from protocol.wording import size

Life = tuple[str, int]
"""A worker's name and process."""


class Load:
    """The newest report and the one before it: what happened in between is the load."""

    def __init__(self) -> None:
        self.report: dict[str, Any] | None = None
        self.taken_at = float("-inf")
        self._busy: dict[Life, float] = {}
        self._shares: dict[Life, float] = {}
        self._tiers: dict[Life, Tiers] = {}
        self._lately: dict[Life, Tiers] = {}

    def take(self, report: dict[str, Any] | None, now: float) -> None:
        """Remember a report that came at `now` (seconds of any clock)."""
        if report is None:
            return
        busy = {_life(worker): float(worker["busy_s"]) for worker in _reported(report)}
        passed = now - self.taken_at
        self._shares = {
            life: (seconds - self._busy[life]) / passed for life, seconds in busy.items() if life in self._busy
        }
        self._take_tiers(report["workers"])
        self.report, self.taken_at, self._busy = report, now, busy

    def busy_share(self, worker: dict[str, Any]) -> float | None:
        """Part of the time between the last two reports that a worker spent in its kernels, or None if unknown."""
        share = self._shares.get(_life(worker))
        return None if share is None else min(1.0, max(0.0, share))

    def lately(self, worker: dict[str, Any]) -> Tiers | None:
        """What a worker's tiers counted between the last two reports between which it worked; None if unknown."""
        return self._lately.get(_life(worker))

    def _take_tiers(self, workers: Iterable[dict[str, Any]]) -> None:
        before, kept = self._tiers, self._lately
        self._tiers = {_life(worker): tiers for worker in workers if (tiers := Tiers.of(worker)) is not None}
        since = {life: tiers.minus(before[life]) for life, tiers in self._tiers.items() if life in before}
        self._lately = {life: tiers for life, tiers in kept.items() if life in self._tiers}
        self._lately |= {life: tiers for life, tiers in since.items() if tiers.calls > 0}


def worker_rows(roles: Iterable[Role], report: dict[str, Any] | None, load: Load) -> list[tuple[str, ...]]:
    """Cells of role, state, process, restarts, experts, calls, busy, beat, memory, source (read).

    Workers that were started elsewhere come last.
    """
    workers = {worker["name"]: worker for worker in _reported(report or {})}
    rows = [(role.name, *_cells(role, workers.pop(role.name, None), load)) for role in roles]
    return rows + [(name, *_cells(None, worker, load)) for name, worker in workers.items()]


def busy(worker: dict[str, Any], load: Load) -> str:
    """The part of the time that it spends in its kernels, if that is known."""
    share = load.busy_share(worker)
    return "" if share is None else percent(share)


def state(worker: dict[str, Any]) -> str:
    """Where it stands, and how it is if that is worth a word."""
    return f"{worker['state']}, {worker['sign']}" if worker.get("why") else str(worker["state"])


def beat_age(member: dict[str, Any]) -> str:
    """How long ago the latest beat came; nothing before the first."""
    return "" if member["beat_age_s"] is None else f"{member['beat_age_s']:.1f} s"


def memory(member: dict[str, Any]) -> str:
    """What is resident of a process; nothing before its first beat."""
    return "" if member["resident_bytes"] is None else size(member["resident_bytes"])


def _cells(role: Role | None, worker: dict[str, Any] | None, load: Load) -> tuple[str, ...]:
    known = worker or {}
    stands = role.state if role is not None and (not known or role.state != "running") else state(known)
    process = str(role.pid if role is not None else known["pid"])
    restarts = str(role.restarts) if role is not None else ""
    if worker is None:
        return (stands, process, restarts, "", "", "", "", "", "")
    return (
        stands,
        process,
        restarts,
        str(worker["experts"]),
        str(worker["calls"]),
        busy(worker, load),
        beat_age(worker),
        memory(worker),
        _source(worker, load.lately(worker)),
    )


def _source(worker: dict[str, Any], lately: Tiers | None) -> str:
    """Where its experts come from, and which part of those that it needed lately had to be read from files first."""
    source = worker.get("source") or ""
    if lately is None or "file_reads" not in lately.counts:
        return source
    return f"{source} ({percent(lately.share('file_reads') or 0.0)})"


def _reported(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Workers, and lookahead processes as if they were some: their inputs are calls, and they hold nothing."""
    beside = [{**one, "experts": "", "calls": one["inputs"]} for one in report.get("lookahead", ())]
    return [*report.get("workers", ()), *beside]


def _life(worker: dict[str, Any]) -> Life:
    return worker["name"], worker["pid"]
