"""The scenario of a cluster that is not up: what its file states, what was tried here, what is said of the network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from coordinator.config import ClusterConfig, WorkerGroup
from coordinator.own_costs import OwnCosts
from coordinator.simulation.scenario import ENDLESS, Costs, Kind, Scenario, Shape, Varied

CHANCE = 0.3
"""Standard deviation of the logarithm of what calls take beside kernels, from one to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Between machines."""

    round_trip_s: float = 0.3e-3
    """Of a small message, there and back, beside what waking up costs on one machine too."""
    bytes_per_s: float = 1.25e8
    """Of everybody's line, the coordinator's among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What was measured on this machine."""

    own: OwnCosts
    """With the coordinator's threads."""
    entry_s: Mapping[int, float]
    """In a worker's kernels, for one expert of one row: by its threads."""


def stated(
    config: ClusterConfig,
    shape: Shape,
    tried: Tried,
    *,
    network: Network | None,
    cores: float,
    variation: float,
    rows: int = 1,
    seed: int = 0,
) -> Scenario:
    """Of the workers that the file states: on one machine of so many cores, or with a `network` each on one of its own.

    All are as fast as this machine, but for a `variation`: the standard deviation of the logarithm, from one to another
    and from call to call, of kernels and lines. Peers are left out.
    """
    own = tried.own
    costs = Costs(
        layer_s=own.layer_s,
        layer_row_s=own.layer_row_s,
        step_s=own.step_s,
        step_row_s=own.step_row_s,
        entry_s=own.entry_s,
        call_s=own.call_s,
        answer_s=own.answer_s,
    )
    kinds = tuple(_kind(group, tried, network, variation) for group in config.workers if group.count)
    return Scenario(
        shape=shape,
        costs=costs,
        kinds=kinds,
        rows=rows,
        cores=cores,
        port_bytes_per_s=math.inf if network is None else network.bytes_per_s,
        replicas=config.placement.replicas,
        even=config.placement.by == "even",
        seed=seed,
    )


def _kind(group: WorkerGroup, tried: Tried, network: Network | None, variation: float) -> Kind:
    entry_s = tried.entry_s[group.threads]
    if network is None:
        apart_s, line, pages = 0.0, ENDLESS, pages_of(group)
    else:
        line = Varied(mean=network.bytes_per_s, between=variation, within=variation)
        apart_s, pages = network.round_trip_s, ""
    return Kind(
        name=group.name,
        count=group.count,
        entry_s=Varied(mean=entry_s, between=variation, within=variation),
        answer_s=Varied(mean=0.0),
        round_trip_s=Varied(mean=tried.own.apart_s + apart_s, within=CHANCE),
        bytes_per_s=line,
        threads=group.threads,
        here=network is None,
        pages=pages,
    )


def pages_of(group: WorkerGroup) -> str:
    """What its workers on this machine compute from: equal for all that share that memory, empty for who does not."""
    return "here" if group.source in ("auto", "mapped", "shared") else ""


def scaled(groups: Sequence[WorkerGroup], count: int) -> tuple[WorkerGroup, ...]:
    """The same groups with `count` workers in all, in the same proportions as far as that goes.

    ValueError if there are no workers to take more of.
    """
    total = sum(group.count for group in groups)
    if not total:
        raise ValueError("no workers")
    parts = [group.count * count / total for group in groups]
    counts = [int(part) for part in parts]
    most_left = sorted(range(len(parts)), key=lambda at: (counts[at] - parts[at], at))
    for at in most_left[: count - sum(counts)]:
        counts[at] += 1
    return tuple(replace(group, count=n) for group, n in zip(groups, counts, strict=True))
