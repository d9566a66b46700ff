"""The processors of one machine, which all that runs there shares evenly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.simulation.timeline import Timeline


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    left_s: float
    threads: int
    done: Callable[[float], None]


class Processor:
    """So many cores. A number with a fraction is one of two threads that do less than twice the work of one."""

    def __init__(self, timeline: Timeline, cores: float = math.inf) -> None:
        self._timeline = timeline
        self._cores = cores
        self._jobs: list[_Job] = []
        self._since = 0.0
        self._plan = 0

    def run(self, when: float, seconds: float, threads: int, done: Callable[[float], None]) -> None:
        """From then on, work that takes so long if nobody else runs; `done` is told when it ended."""
        self._pass(when)
        self._timeline.computing += 1
        self._jobs.append(_Job(left_s=seconds, threads=threads, done=done))
        self._expect(when)

    @property
    def _rate(self) -> float:
        """Seconds of a job that are done in a second."""
        return min(1.0, self._cores / max(1, sum(job.threads for job in self._jobs)))

    def _pass(self, when: float) -> None:
        """Let time pass for whatever runs."""
        done_s = (when - self._since) * self._rate
        for job in self._jobs:
            job.left_s -= done_s
        self._since = when

    def _expect(self, when: float) -> None:
        """Look again when the next job ends, unless another one begins before."""
        self._plan += 1
        plan = self._plan
        if self._jobs:
            least_s = max(0.0, min(job.left_s for job in self._jobs))
            self._timeline.at(when + least_s / self._rate, lambda at: self._end(at, plan))

    def _end(self, when: float, plan: int) -> None:
        if plan != self._plan:
            return
        self._pass(when)
        least_s = min(job.left_s for job in self._jobs)
        ended = [job for job in self._jobs if job.left_s <= max(least_s, 1e-12)]
        self._jobs = [job for job in self._jobs if job not in ended]
        self._timeline.computing -= len(ended)
        self._expect(when)
        for job in ended:
            job.done(when)
