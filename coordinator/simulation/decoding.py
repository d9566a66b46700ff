"""Simulated answers: so many steps, with or without mishaps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

from coordinator.sampled_rows import sampled_rows
from coordinator.simulation.mesh import SimulatedMesh
from coordinator.simulation.outcome import LONG, Decoded, Pauses
from coordinator.simulation.scenario import Scenario
from coordinator.simulation.worker import SimulatedWorker
from protocol.errors import ConfigError
from protocol.messages import I32

Mishap = Literal["killed", "frozen", "vanished", "joins"]
"""A worker's process ends; it stands still for FROZEN_S; nothing passes its network any more; one more comes."""
MISHAPS: tuple[Mishap, ...] = get_args(Mishap)

BLOCK = 16
"""Steps whose routing is drawn together."""
CALM = 4
"""Steps before a mishap, to learn what one takes, and after it, none of which took long, for it to be over."""
MOST_STEPS = 60
"""That are looked at after a mishap: what takes long for good, since a fast worker is missing, is no pause."""
FROZEN_S = 8.0
AWAY_S = 1.0
"""From an end to the next life of a worker."""
SETTLE_S = 600.0
"""Time for a new placement to be in force, between two mishaps."""


def routing(scenario: Scenario) -> Iterator[I32]:
    """(layers, rows, used) of each step, for ever."""
    shape, rows = scenario.shape, scenario.rows
    for block in itertools.count():
        seed = scenario.seed * 1_000_003 + block
        drawn = sampled_rows(shape.counts, shape.used, rows * BLOCK, seed=seed)
        for step in range(BLOCK):
            yield drawn[:, step * rows : (step + 1) * rows]


def decode(scenario: Scenario, steps: int) -> Decoded:
    """So many steps of a cluster that is complete. ConfigError if it cannot be."""
    mesh = SimulatedMesh(scenario)
    mesh.gather()
    spent_s = mesh.timeline.spent_s.copy()
    step_s = np.array([mesh.step(ids) for ids in itertools.islice(routing(scenario), steps)])
    return Decoded(
        workers=scenario.workers,
        idle=sum(not mesh.members.assignment.active.held(member.serial).any() for member in mesh.members),
        rows=scenario.rows,
        step_s=step_s,
        parts_s={what: (now_s - spent_s[what]) / steps for what, now_s in mesh.timeline.spent_s.items()},
        local=_local_share(mesh),
    )


def _local_share(mesh: SimulatedMesh) -> float:
    counters = mesh.cluster.counters
    others = sum(tally.entries for tally in counters.workers.values())
    return counters.local_entries / max(1, counters.local_entries + others)


def pauses(scenario: Scenario, mishap: Mishap, times: int) -> Pauses:
    """The mishap so many times, one after another, each to a worker drawn and when the one before is over.

    ConfigError if the cluster cannot be complete before the first.
    """
    if not scenario.workers:
        raise ConfigError("no worker can have a mishap where there is none")
    mesh = SimulatedMesh(scenario)
    mesh.gather()
    rng = np.random.default_rng(scenario.seed + 1)
    steps = routing(scenario)
    found = [_one(mesh, mishap, mesh.workers[int(rng.integers(len(mesh.workers)))], rng, steps) for _ in range(times)]
    pause_s, slow_s = zip(*found, strict=True)
    return Pauses(pause_s=np.array(pause_s), slow_s=np.array(slow_s))


def _one(
    mesh: SimulatedMesh, mishap: Mishap, worker: SimulatedWorker, rng: np.random.Generator, steps: Iterator[I32]
) -> tuple[float, float]:
    """The longest wait for a token after a mishap, and how long tokens took long, in seconds."""
    timeline = mesh.timeline
    if mishap == "joins":  # it was there, and will be again
        worker.die(timeline.now)
        _settle(mesh, mesh.scenario.workers - 1)
    usual_s = float(np.median([mesh.step(next(steps)) for _ in range(CALM)]))
    when = timeline.now + usual_s * rng.random()
    timeline.at(when, lambda at: _happen(worker, mishap, at))
    longest_s, last_long, calm = 0.0, when, 0
    felt_until = when + _felt_s(mesh, mishap)
    for _ in range(MOST_STEPS):
        took_s = mesh.step(next(steps))
        longest_s = max(longest_s, took_s)
        calm = 0 if took_s > LONG * usual_s else calm + 1
        if not calm:
            last_long = timeline.now
        if calm == CALM and timeline.now < felt_until:
            mesh.pass_time(felt_until - timeline.now)  # no need to compute all these tokens
            calm = 0
        elif calm >= CALM:
            break
    if mishap in ("killed", "vanished"):
        worker.die(timeline.now)
        worker.join(timeline.now + AWAY_S)
    _settle(mesh, mesh.scenario.workers)
    return max(0.0, longest_s - usual_s), last_long - when


def _happen(worker: SimulatedWorker, mishap: Mishap, when: float) -> None:
    match mishap:
        case "killed":
            worker.die(when)
        case "frozen":
            worker.freeze(when, FROZEN_S)
        case "vanished":
            worker.vanish(when)
        case "joins":
            worker.join(when)


def _felt_s(mesh: SimulatedMesh, mishap: Mishap) -> float:
    """How long after a mishap there may still be something to come of it: a new placement, say."""
    if mishap == "frozen":
        return FROZEN_S + 1.0
    return mesh.members.terms.silence_limit_s + 1.0 if mishap == "vanished" else 1.0


def _settle(mesh: SimulatedMesh, workers: int) -> None:
    """Let time pass until so many workers are in a placement that is in force."""
    until = mesh.timeline.now + SETTLE_S
    assignment = mesh.members.assignment
    while mesh.timeline.now < until and (len(assignment.active.members) != workers or not assignment.ready):
        mesh.cluster.wait(0.05)
        mesh.attend()
