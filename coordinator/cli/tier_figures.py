"""What the counters of one worker's tiers come to: shares, rates, and how much of its time went into reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HITS = ("copy_hits", "cache_hits", "file_reads")
"""Where an expert that was needed can have been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """What was counted in one life of a worker, or a part of it."""

    source: str
    """`Beat.source`."""
    calls: int
    """That were answered."""
    kernel_s: float
    """Time in the kernels; waiting for reads is not among it."""
    counts: Mapping[str, int]
    """`Beat.tiers`, as far as it is told."""

    @classmethod
    def of(cls, worker: Mapping[str, Any]) -> Tiers | None:
        """What a report tells of a worker since its process began; None before its first beat."""
        begun = worker["since_start"]
        if begun is None:
            return None
        return cls(source=worker["source"], calls=begun["calls"], kernel_s=begun["busy_s"], counts=worker["tiers"])

    def minus(self, earlier: Tiers) -> Tiers:
        """What was counted since `earlier`, in the same life; nothing where something claims to have become less."""
        return Tiers(
            source=self.source,
            calls=max(0, self.calls - earlier.calls),
            kernel_s=max(0.0, self.kernel_s - earlier.kernel_s),
            counts={name: max(0, count - earlier[name]) for name, count in self.counts.items()},
        )

    def __getitem__(self, name: str) -> int:
        """One counter; 0 if it is not told."""
        return self.counts.get(name, 0)

    def any(self, *names: str) -> bool:
        """Whether one of these counted anything."""
        return any(self[name] > 0 for name in names)

    def share(self, hit: str) -> float | None:
        """One of HITS, as a part of all; None if nobody looked where experts were."""
        return _ratio(self[hit], sum(self[name] for name in HITS))

    @property
    def read_s(self) -> float:
        """That the worker waited for files."""
        return self["file_read_us"] * 1e-6

    @property
    def reading_share(self) -> float | None:
        """The part of its working time, in kernels or waiting for files, that it waited; None if it did not work."""
        return _ratio(self.read_s, self.read_s + self.kernel_s)

    @property
    def read_rate(self) -> float | None:
        """Bytes a second while it waited for files."""
        return _ratio(self["file_read_bytes"], self.read_s)

    @property
    def load_rate(self) -> float | None:
        """Bytes a second while copies were made."""
        return _ratio(self["loaded_bytes"], self["load_us"] * 1e-6)

    @property
    def fetch_rate(self) -> float | None:
        """Bytes a second while weights were fetched."""
        return _ratio(self["fetched_bytes"], self["fetch_us"] * 1e-6)

    @property
    def useful_share(self) -> float | None:
        """The hints that were of use, as a part of all that were followed."""
        return _ratio(self["hints_useful"], self["hints_hinted"])


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
