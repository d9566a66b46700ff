"""Everything that can happen to a cluster and its links, at random moments, in a thread beside a test that asks.

Each process has one trouble at a time; troubles of several overlap. What was done stays in a diary, for whoever has to
find out what failed.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from clusters import LiveCluster
from relays import BadLink

JOIN_S = 15.0
"""Time for a worker to start and join; if it does not, who waits for it will say so."""
LEAVE_S = 30.0
"""For a worker that was told to: it waits a while for others to hold its experts, if there are any."""
Trouble = Iterator[float]
"""Does something, gives how long to leave it so, and goes on."""
COORDINATOR = -1
"""Its number, beside those of workers."""


class Chaos:
    """Troubles for the processes of a cluster, until the end of the block; then all is healed."""

    def __init__(
        self,
        cluster: LiveCluster,
        links: dict[int, BadLink],
        seed: int,
        *,
        outlives: int | None = None,
        coordinator: bool = False,
    ) -> None:
        """`links` are of those workers, by number, that are behind one. Whoever `outlives` all is never killed.

        The `coordinator` has troubles too, if wanted: it is started again as launchers do.
        """
        self.diary: list[str] = []
        self.done: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._cluster = cluster
        self._links = links
        self._outlives = outlives
        self._numbers = [*range(len(cluster.workers)), *([COORDINATOR] if coordinator else [])]
        self._chance = random.Random(seed)
        self._end = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run)

    # --- troubles ---------------------------------------------------------------------------------------------

    def _killed(self, number: int) -> Trouble:
        self._cluster.workers[number].kill()
        yield self._chance.uniform(0.0, 1.5)
        yield from self._started(number)

    def _started(self, number: int) -> Trouble:
        """Again, and for a while a member."""
        before = self._joined(number)
        self._cluster.restart_worker(number)
        until = self._now() + JOIN_S
        while self._joined(number) == before and self._now() < until:
            yield 0.05
        yield self._chance.uniform(0.2, 1.5)

    def _joined(self, number: int) -> int:
        """How often it has, in all its lives."""
        return self._cluster.workers[number].log.read_text().count("joined session")

    def _killed_while_it_starts(self, number: int) -> Trouble:
        self._cluster.workers[number].kill()
        self._cluster.restart_worker(number)
        yield self._chance.uniform(0.0, 1.0)
        self._cluster.workers[number].kill()
        yield from self._started(number)

    def _leaves(self, number: int) -> Trouble:
        self._cluster.workers[number].signal(signal.SIGTERM)
        self._cluster.workers[number].wait(LEAVE_S)
        yield self._chance.uniform(0.0, 1.5)
        yield from self._started(number)

    def _frozen(self, number: int) -> Trouble:
        self._cluster.workers[number].freeze()
        yield self._chance.choice([0.02, 0.1, 0.5, 3.0])
        self._cluster.workers[number].thaw()

    def _frozen_and_killed(self, number: int) -> Trouble:
        self._cluster.workers[number].freeze()
        yield self._chance.uniform(0.0, 0.5)
        yield from self._killed(number)

    def _held(self, number: int) -> Trouble:
        self._links[number].say(f"hold {self._chance.choice(['up', 'down', 'both'])}")
        yield self._chance.choice([0.02, 0.1, 0.5, 3.0])
        self._links[number].say("pass")

    def _cut(self, number: int) -> Trouble:
        for _ in range(self._chance.randrange(1, 4)):
            self._links[number].say("cut")
            yield self._chance.uniform(0.0, 0.3)

    def _forgotten(self, number: int) -> Trouble:
        self._links[number].say(f"forget {self._chance.choice(['near', 'far'])}")
        yield self._chance.uniform(0.5, 2.0)

    def _slow(self, number: int) -> Trouble:
        self._links[number].say(f"delay {self._chance.uniform(0, 40):.1f}")
        self._links[number].say(f"mbit {self._chance.choice([0, 2, 20])}")
        yield self._chance.uniform(0.5, 2.0)
        self._links[number].say("delay 0")
        self._links[number].say("mbit 0")

    def _lossy(self, number: int) -> Trouble:
        self._links[number].say(f"loss {self._chance.choice([0.005, 0.02, 0.1])} {self._chance.randrange(1000)}")
        yield self._chance.uniform(0.5, 2.0)
        self._links[number].say("loss 0 0")

    def _coordinator_killed(self, number: int) -> Trouble:
        before = self._placed()
        self._cluster.resume_coordinator()
        until = self._now() + JOIN_S
        while self._placed() == before and self._now() < until:
            yield 0.05
        yield self._chance.uniform(0.5, 5.0)

    def _placed(self) -> int:
        """How often anybody was put in force, in all the coordinator's lives."""
        return self._cluster.coordinator.log.read_text().count(" in force: ")

    def _coordinator_killed_while_it_starts(self, number: int) -> Trouble:
        self._cluster.resume_coordinator()
        yield self._chance.uniform(0.0, 1.0)
        yield from self._coordinator_killed(number)

    def _coordinator_frozen(self, number: int) -> Trouble:
        self._cluster.coordinator.freeze()
        yield self._chance.choice([0.02, 0.1, 0.5, 3.0])
        self._cluster.coordinator.thaw()

    # --- at random ---------------------------------------------------------------------------------------------

    def _troubles_of(self, number: int) -> list[Callable[[int], Trouble]]:
        if number == COORDINATOR:
            return [
                self._coordinator_killed,
                self._coordinator_killed_while_it_starts,
                self._coordinator_frozen,
            ]
        ends = [self._killed, self._killed_while_it_starts, self._leaves, self._frozen_and_killed]
        of_links = [self._held, self._cut, self._forgotten, self._slow, self._lossy]
        return [
            self._frozen,
            *(ends if number != self._outlives else []),
            *(of_links if number in self._links else []),
        ]

    def _run(self) -> None:
        try:
            self._trouble_all()
        except BaseException as error:  # told by the test's own thread
            self.error = error

    def _trouble_all(self) -> None:
        under_way: dict[int, Trouble] = {}
        due = {number: self._chance.uniform(0.0, 1.0) + self._now() for number in self._numbers}
        while not self._end.is_set():
            number = min(due, key=lambda one: due[one])
            if self._end.wait(max(0.0, due[number] - self._now())):
                break
            if number not in under_way:
                chosen = self._chance.choice(self._troubles_of(number))
                self._note(f"{number}: {chosen.__name__[1:]}")
                self.done[chosen.__name__[1:]] += 1
                under_way[number] = chosen(number)
            self._go_on(number, under_way, due)
        for trouble in under_way.values():  # whatever was begun is healed
            for _ in trouble:
                pass
        for link in self._links.values():
            link.say("pass")

    def _go_on(self, number: int, under_way: dict[int, Trouble], due: dict[int, float]) -> None:
        try:
            due[number] = self._now() + next(under_way[number])
        except StopIteration:
            del under_way[number]
            due[number] = self._now() + self._chance.uniform(0.1, 1.5)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _note(self, what: str) -> None:
        self.diary.append(f"{self._now():.2f} {what}")

    def __enter__(self) -> Chaos:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
