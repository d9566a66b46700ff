"""Our own side of a comparison: a cluster that stays up and is asked as any client asks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sides import ASK_S, READY_S, Timing

from coordinator.client import Client
from coordinator.config import ClusterConfig
from coordinator.cores import usable_cores
from coordinator.guard import Guard
from coordinator.interrupts import Interrupts
from coordinator.launch_plan import plan_here, private_cluster
from coordinator.launcher import Launcher
from coordinator.sampling import Sampling
from coordinator.wording import counted
from protocol.errors import ExpertmeshError
from protocol.messages import Finished, Token


class OurSide:
    """A running cluster and its client."""

    program = "expertmesh"

    def __init__(self, config: ClusterConfig, launcher: Launcher, client: Client) -> None:
        self._config = config
        self._launcher = launcher
        self._client = client
        self._watch = Guard(launcher, client, self._lost)

    @property
    def name(self) -> str:
        """See sides.Side."""
        coordinator = counted(self._config.coordinator.threads, "thread")
        (group,) = self._config.workers
        if not group.count:
            return f"no workers, {coordinator}"
        return f"{group.count} workers of {counted(group.threads, 'thread')}, coordinator of {coordinator}"

    @property
    def threads(self) -> int:
        """See sides.Side. A coordinator with workers mostly waits while they compute."""
        return max(self._config.coordinator.threads, self._config.worker_threads)

    def ready(self) -> None:
        """Wait until all workers compute."""
        self._client.greet(READY_S, self._watch)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            status = self._client.status(1.0, self._watch)
            if status is not None and status["state"] != "waiting":
                return
        raise ExpertmeshError(f"{self.name}: not ready within {READY_S:g} s")

    def ask(self, prompt_ids: Sequence[int], tokens: int) -> Timing:
        """See sides.Side."""
        request = self._client.submit(prompt_ids, max_tokens=tokens, stop_ids=[], sampling=Sampling())
        deadline = time.monotonic() + ASK_S
        ids: list[int] = []
        for event in self._client.events(request, self._watch):
            if time.monotonic() > deadline:
                raise ExpertmeshError(f"{self.name}: {len(ids)} of {tokens} tokens within {ASK_S:g} s")
            if isinstance(event, Token):
                ids.append(event.id)
            elif isinstance(event, Finished):
                return self._timing(event, ids)
        raise AssertionError("the last event is Finished")

    def pids(self) -> list[int]:
        """See sides.Side."""
        return [child.pid for child in self._launcher.children.values()]

    def _timing(self, finished: Finished, ids: Sequence[int]) -> Timing:
        local = int(finished.report["local_entries"]) if self._config.worker_threads else 0
        return Timing(
            prompt_s=finished.prompt_us / 1e6,
            decode_s=finished.decode_us / 1e6,
            ids=tuple(ids),
            note=f"{local} experts' rows computed by the coordinator, since a worker was late" if local else "",
        )

    def _lost(self, what: str) -> None:
        raise ExpertmeshError(what)  # with one worker less it is not what was to be measured


@contextmanager
def our_side(model: Path, interrupts: Interrupts, *, workers: int, threads: int) -> Iterator[OurSide]:
    """A cluster that is ready, shared out as by `expertmesh generate --workers --threads`.

    The workers of all such clusters are bound to the same cores, since only one cluster is asked at a time.
    """
    config = private_cluster(model, workers=workers, threads=threads)
    plan = plan_here(config, usable_cores())
    with Launcher(plan, interrupts) as launcher, Client(config.coordinator.listen) as client:
        side = OurSide(config, launcher, client)
        side.ready()
        yield side
