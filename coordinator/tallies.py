"""What was computed where, counted for reports and never for control."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, fields


@dataclass(slots=True, kw_only=True)
class Tally:
    """One worker's accepted answers, through all lives of its name."""

    calls: int = 0
    entries: int = 0
    busy_us: int = 0
    """Time in its kernels."""
    wait_us: int = 0
    """Time it waited for these calls while there was a request; being idle is not waiting."""

    def minus(self, earlier: Tally) -> Tally:
        """What was counted since `earlier`."""
        return Tally(**{one.name: getattr(self, one.name) - getattr(earlier, one.name) for one in fields(self)})


@dataclass(slots=True, kw_only=True)
class DraftCounts:
    """Tokens that were guessed before they were computed."""

    steps: int = 0
    """That computed tokens after an answer's first, with drafts or without."""
    drafted: int = 0
    """Guesses that were verified."""
    accepted: int = 0
    """Those that were right: as many tokens more than steps."""

    def add(self, more: DraftCounts) -> None:
        """Count these too."""
        self.steps += more.steps
        self.drafted += more.drafted
        self.accepted += more.accepted

    def minus(self, earlier: DraftCounts) -> DraftCounts:
        """What was counted since `earlier`."""
        return DraftCounts(
            steps=self.steps - earlier.steps,
            drafted=self.drafted - earlier.drafted,
            accepted=self.accepted - earlier.accepted,
        )

    def report(self) -> dict[str, int]:
        """As plain values."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(slots=True, kw_only=True)
class Counters:
    """Of one coordinator since its start; entries are conserved: its own and the members' are all there were."""

    local_entries: int = 0
    """(row, expert) entries that the local bank computed."""
    device_entries: int = 0
    """Those that the coordinator's own slots computed."""
    layers: int = 0
    """Layers with experts that were computed, those of either half of a window."""
    replans: int = 0
    """Parts that were taken from a worker that was late, lost or failed."""
    hedges: int = 0
    """Parts that others were asked for, too, because their worker took longer than it does."""
    late_replies: int = 0
    """Well-formed answers that came too late, or again, and were dropped."""
    dropped: int = 0
    """Messages that nobody asked for, or that answer wrongly; malformed ones are counted by the sockets."""
    canaries: int = 0
    """Answers to canary rows that were compared with ours."""
    audits: int = 0
    """Answers of steps that were computed here again, and compared."""
    workers: dict[str, Tally] = field(default_factory=dict)
    """By name."""

    def worker(self, name: str) -> Tally:
        """The tally of that name."""
        tally = self.workers.get(name)
        if tally is None:
            tally = self.workers[name] = Tally()
        return tally

    def keep(self, names: Set[str]) -> None:
        """Forget workers of other names: those that left long ago."""
        for name in self.workers.keys() - names:
            del self.workers[name]

    def copy(self) -> Counters:
        """As they are now."""
        return self.minus(Counters())

    def minus(self, earlier: Counters) -> Counters:
        """What was counted since `earlier`."""
        before = earlier.workers
        return Counters(
            local_entries=self.local_entries - earlier.local_entries,
            device_entries=self.device_entries - earlier.device_entries,
            layers=self.layers - earlier.layers,
            replans=self.replans - earlier.replans,
            hedges=self.hedges - earlier.hedges,
            late_replies=self.late_replies - earlier.late_replies,
            dropped=self.dropped - earlier.dropped,
            canaries=self.canaries - earlier.canaries,
            audits=self.audits - earlier.audits,
            workers={name: tally.minus(before.get(name, Tally())) for name, tally in self.workers.items()},
        )
