"""Mishaps at random: each worker's come one after another, those of several workers independent of each other."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from coordinator.simulation.mesh import SimulatedMesh
from coordinator.simulation.worker import SimulatedWorker

Cause = Literal["killed", "frozen", "vanished"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often something happens, on average; when is chance, without memory."""

    killed: float = 0.0
    """Of each worker that is well, in an hour: its process ends, and another one comes when it is over."""
    frozen: float = 0.0
    """It stands still until it is over."""
    vanished: float = 0.0
    """Nothing passes its network until it is over."""
    joins: float = 0.0
    """In an hour: one worker more comes, like those of the first kind, and stays."""
    back_s: float = 30.0
    """After which it is over, on average: without memory, too."""

    @property
    def of_one(self) -> float:
        """Mishaps of one worker that is well, in an hour."""
        return self.killed + self.frozen + self.vanished


class RandomMishaps:
    """What happens to the workers of a mesh from now on."""

    def __init__(self, mesh: SimulatedMesh, rates: Rates, rng: np.random.Generator) -> None:
        """The chance of it all is drawn from `rng`, the mesh has its own."""
        self.counts: dict[str, int] = dict.fromkeys((*CAUSES, "joins"), 0)
        self.ill = 0
        """Workers that have one just now."""
        self.most_ill = 0
        """That had one at the same time."""
        self.last_at = mesh.timeline.now
        """When something last began or was over."""
        self._mesh = mesh
        self._rates = rates
        self._rng = rng
        self._to_come: list[float] = []
        for worker in mesh.workers:
            self._well(worker, self.last_at)
        if rates.joins:
            self._after(self.last_at, HOUR_S / rates.joins, self._join)

    @property
    def next_at(self) -> float:
        """When something begins or is over next; infinite if never."""
        return self._to_come[0] if self._to_come else np.inf

    def _after(self, when: float, mean_s: float, happen: Callable[[float], None]) -> None:
        self._at(when + self._rng.exponential(mean_s), happen)

    def _at(self, due: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._to_come, due)

        def happening(at: float) -> None:
            heapq.heappop(self._to_come)  # they happen in order
            self.last_at = at
            happen(at)

        self._mesh.timeline.at(due, happening)

    def _well(self, worker: SimulatedWorker, when: float) -> None:
        if self._rates.of_one:
            self._after(when, HOUR_S / self._rates.of_one, lambda at: self._fall_ill(worker, at))

    def _fall_ill(self, worker: SimulatedWorker, when: float) -> None:
        chances = [getattr(self._rates, cause) / self._rates.of_one for cause in CAUSES]
        cause = CAUSES[int(self._rng.choice(len(CAUSES), p=chances))]
        self.counts[cause] += 1
        self.ill += 1
        self.most_ill = max(self.most_ill, self.ill)
        seconds = self._rng.exponential(self._rates.back_s)
        match cause:
            case "killed":
                worker.die(when)
            case "frozen":
                worker.freeze(when, seconds)
            case "vanished":
                worker.vanish(when, seconds)
        self._at(when + seconds, lambda at: self._recover(worker, cause, at))

    def _recover(self, worker: SimulatedWorker, cause: Cause, when: float) -> None:
        self.ill -= 1
        if cause == "killed":
            worker.join(when)
        self._well(worker, when)

    def _join(self, when: float) -> None:
        mesh, number = self._mesh, self.counts["joins"]
        self.counts["joins"] += 1
        self._well(mesh.add(mesh.scenario.kinds[0], f"newcomer-{number}"), when)
        self._after(when, HOUR_S / self._rates.joins, self._join)
