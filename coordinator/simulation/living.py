"""Hours of a cluster that has mishaps at random: steps are played through while anything is going on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from coordinator.profile import F64
from coordinator.simulation.decoding import routing
from coordinator.simulation.mesh import SimulatedMesh
from coordinator.simulation.outcome import LONG, Lived
from coordinator.simulation.random_mishaps import HOUR_S, RandomMishaps, Rates
from coordinator.simulation.scenario import Scenario
from protocol.errors import ConfigError
from protocol.messages import I32, I64

KEPT = 24
"""Steps that must be alike for a cluster to be calm."""
FELT_S = 5.0
"""After whatever began or was over, that something may still come of it: longer than silence and placement take."""


def live(scenario: Scenario, rates: Rates, hours: float) -> Lived:
    """So many hours of answering, with mishaps as often as `rates` say, from a cluster that is complete on.

    While all is calm, steps are taken to be like those just before, until something happens next; so hours can be
    simulated. ConfigError if the cluster cannot be complete, or has no workers.
    """
    if not scenario.workers:
        raise ConfigError("no worker can have a mishap where there is none")
    mesh = SimulatedMesh(scenario)
    mesh.gather()
    steps = routing(scenario)
    calm = [mesh.step(next(steps)) for _ in range(KEPT)]
    usual_s = float(np.median(calm))
    until = mesh.timeline.now + hours * HOUR_S
    mishaps = RandomMishaps(mesh, rates, np.random.default_rng(scenario.seed + 2))
    took_s, times = _played(mesh, mishaps, steps, until)
    return Lived(
        workers=scenario.workers,
        rows=scenario.rows,
        usual_s=usual_s,
        step_s=took_s,
        times=times,
        counts=mishaps.counts,
        most_at_once=mishaps.most_ill,
    )


def _played(mesh: SimulatedMesh, mishaps: RandomMishaps, steps: Iterator[I32], until: float) -> tuple[F64, I64]:
    """How long steps took, and how many took so long."""
    took_s: list[float] = []
    times: list[int] = []
    last: deque[float] = deque(maxlen=KEPT)
    while mesh.timeline.now < until:
        last.append(mesh.step(next(steps)))
        took_s.append(last[-1])
        times.append(1)
        left_s = min(mishaps.next_at, until) - mesh.timeline.now
        if not _is_calm(mesh, mishaps, last) or left_s < sum(last):
            continue
        rounds = int(left_s / sum(last))
        mesh.pass_time(rounds * sum(last))
        took_s += last
        times += [rounds] * len(last)
        last.clear()
    return np.array(took_s), np.array(times, np.int64)


def _is_calm(mesh: SimulatedMesh, mishaps: RandomMishaps, last: deque[float]) -> bool:
    """Nothing happened lately, no placement is being prepared, and steps take as long as each other."""
    if len(last) < KEPT or not mesh.members.assignment.ready or mesh.timeline.now < mishaps.last_at + FELT_S:
        return False
    return max(last) <= LONG * float(np.median(last))
