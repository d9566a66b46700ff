"""What is expected of a cluster that is not up: its placement, a token's time, and who makes that shorter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coordinator.config import ClusterConfig, WorkerGroup
from coordinator.cost import Expected
from coordinator.demand import Demand
from coordinator.pace import Pace
from coordinator.placement import Holder, Placement
from coordinator.planner import Here, Planner
from coordinator.simulation.scenario import Shape
from coordinator.simulation.stated import Network, Tried, pages_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilePlan:
    """Of the workers of a file; peers are left out."""

    names: Mapping[int, str]
    """By serial number."""
    holders: tuple[Holder, ...]
    placement: Placement
    expected: Expected
    without_s: Mapping[int, float]
    """What a token would take without each of them, by serial number."""

    @classmethod
    def of(cls, config: ClusterConfig, shape: Shape, tried: Tried, cores: int) -> FilePlan:
        """With all workers that are `local` on this machine of so many cores, and each of the others on one alike."""
        holders, names = _holders(config, tried, cores), _names(config)
        planner = Planner(
            stock=shape.stock,
            own=np.zeros(shape.counts.shape, np.uint8),
            demand=Demand.of(shape.counts, shape.used),
            replicas=config.placement.replicas,
            even=config.placement.by == "even",
        )
        apart = all(group.host is not None for group in config.workers if group.count)
        here = Here(
            local=Pace(entry_s=tried.own.entry_s) if apart else None,  # or else it shares the cores with them
            dense_s=tried.own.dense_s(len(shape.stock.slot_bytes)),
        )

        def expected(there: Sequence[Holder]) -> tuple[Placement, Expected]:
            placement = planner.place(1, there, here=here)
            return placement, planner.outlook(placement, there, here)

        placement, found = expected(holders)
        alike: dict[tuple[object, ...], float] = {}
        without = {}
        for holder in holders:
            kind = (names[holder.serial].rpartition("-")[0], holder.serial in placement.left_out)
            if kind not in alike:
                alike[kind] = expected([one for one in holders if one is not holder])[1].token_s
            without[holder.serial] = alike[kind]
        return cls(names=names, holders=tuple(holders), placement=placement, expected=found, without_s=without)

    def as_object(self) -> dict[str, Any]:
        """For JSON, and to be shown: as a coordinator reports it."""
        limits = {what: round(seconds * 1e6) for what, seconds in self.expected.limits.items()}
        return {
            "outlook": {"token_us": round(self.expected.token_s * 1e6), "limits": limits},
            "workers": [self._worker(holder) for holder in self.holders],
        }

    def _worker(self, holder: Holder) -> dict[str, Any]:
        assert holder.pace is not None
        reason = self.placement.left_out.get(holder.serial)
        return {
            "name": self.names[holder.serial],
            "state": "planned",
            "threads": holder.threads,
            "experts": int(self.placement.held(holder.serial).sum()),
            "pace": {"entry_us": holder.pace.entry_s * 1e6, "call_us": holder.pace.call_s * 1e6},
            "last_us": round(self.expected.last_of(holder.serial) * 1e6),
            "without_us": round(self.without_s[holder.serial] * 1e6),
        } | ({} if reason is None else {"left_out": reason})


def _names(config: ClusterConfig) -> dict[int, str]:
    return dict(enumerate(f"{group.name}-{number}" for group in config.workers for number in range(group.count)))


def _holders(config: ClusterConfig, tried: Tried, cores: int) -> list[Holder]:
    here = sum(group.count * group.threads for group in config.workers if group.host is None)
    crowded = max(1.0, here / cores)
    groups = [group for group in config.workers for _ in range(group.count)]
    return [_holder(serial, group, tried, crowded) for serial, group in enumerate(groups)]


def _holder(serial: int, group: WorkerGroup, tried: Tried, crowded: float) -> Holder:
    entry_s, call_s = tried.entry_s[group.threads], tried.own.apart_s
    if group.host is not None:
        pace = Pace(entry_s=entry_s, call_s=call_s + Network().round_trip_s)
        return Holder(serial=serial, room=-1, threads=group.threads, pace=pace)
    return Holder(
        serial=serial,
        room=-1,
        threads=group.threads,
        pages=pages_of(group),
        pace=Pace(entry_s=entry_s * crowded, call_s=call_s),
    )
