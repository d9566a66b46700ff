"""Processes and links that fail at random, several at once, while answers are asked for without pause: the same bits.

Without local experts requests fail while all who hold some are away, by name, and are answered when somebody is back.
What is under way when the coordinator is killed is lost with it, and asked for again.
EXPERTMESH_CHAOS_S says for how many seconds the first two last together, EXPERTMESH_CHAOS_SEED what is random.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from chaos import Chaos
from clusters import HEDGING, LiveCluster, in_force, live_cluster
from command_line import wait_until
from free_ports import four_ports
from growth import Growth
from leftovers import nothing_left
from reference_answer import Reference, reference_for
from relays import bad_link

from coordinator.client import LOST, SilentError
from protocol.errors import RequestError

FOR_S = float(os.environ.get("EXPERTMESH_CHAOS_S", "60")) / 2
SEED = int(os.environ.get("EXPERTMESH_CHAOS_SEED", "7"))
WORKERS = 3
OUTLIVES = 2
"""The worker that is never killed, so that its memory can be told."""
MOST_FILES = 150
BACK_S = 60.0
"""Until everybody computes again once all is healed."""
TOKENS = 80
LEAST_ANSWERS = 10
"""That troubles are made beside, however slow the machine is, where none of them can be lost or fail."""
WARM = 12
"""Answers after which the coordinator has timed as many layers as it remembers."""
OTHER = np.random.default_rng(5).integers(100, 4000, 300).tolist()

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(FOR_S * 4 + 240)]


class Asking:
    """Answers, one after the other, and what those that live throughout need for them."""

    def __init__(
        self, cluster: LiveCluster, references: dict[str, tuple[list[int], Reference]], pids: dict[str, int]
    ) -> None:
        self.answers = self.failed = self.lost = 0
        self.growth = {name: Growth(pid) for name, pid in pids.items()}
        self.files = dict.fromkeys(pids, 0)
        self._cluster = cluster
        self._references = list(references.values())

    def in_words(self) -> str:
        """What came of it."""
        kept = (f"{name} {growth.each() / 1024:.1f} KiB a request" for name, growth in self.growth.items())
        return f"{self.answers} answers, {self.failed} failed, {self.lost} lost; {', '.join(kept)}; files {self.files}"

    def next(self, *, may_fail: bool, may_be_lost: bool) -> None:
        """One more. It may fail without a local bank, as all who hold something may be away at once; what is lost with
        the coordinator is asked for again."""
        prompt, reference = self._references[self.answers % len(self._references)]
        try:
            reference.check(self._cluster.answer(prompt, TOKENS))
            self.answers += 1
        except (RequestError, SilentError) as error:
            if may_be_lost and (isinstance(error, SilentError) or str(error) == LOST):
                self.lost += 1
            elif may_fail and "nobody holds them, and local_experts is false" in str(error):
                self.failed += 1
                self._cluster.wait_for(lambda report: in_force(report) > 0)  # it serves again when somebody is back
            else:
                raise
        for name, growth in self.growth.items():
            growth.look()
            self.files[name] = max(self.files[name], psutil.Process(growth.pid).num_fds())


def everybody_computes(cluster: LiveCluster, ask: Callable[[], None]) -> None:
    """Whoever was hurt is back, and used: at once, or a little later where a busy machine makes somebody late again."""

    def used() -> bool:
        cluster.ready()
        before = {row["name"]: row["calls"] for row in cluster.status()["workers"]}
        ask()
        after = {row["name"]: row["calls"] for row in cluster.status()["workers"]}
        return all(after[f"worker-{number}"] > before[f"worker-{number}"] for number in range(WORKERS))

    assert wait_until(used, BACK_S), cluster.logs()


@pytest.mark.parametrize(
    ("local", "coordinator"),
    [(True, False), (False, False), (True, True)],
    ids=["with local experts", "without", "the coordinator too"],
)
def test_chaos(
    local: bool, coordinator: bool, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    port = four_ports()
    with nothing_left(tmp_path / "temporary", range(port, port + 3)), ExitStack() as stack:
        links = {number: stack.enter_context(bad_link(four_ports(), port)) for number in (1, 2)}
        other = stack.enter_context(reference_for(demo_model, OTHER, TOKENS))
        options = [*HEDGING, "--call-floor-ms", "300", "--beat-s", "0.2", "--chunk", "64"]
        options += [] if local else ["--no-local-experts"]
        settings = {"coordinator_options": options, "listen": links[1].target, "links": links}
        settings["worker_options"] = ["--drain-s", "2"]  # the last holder of an expert may wait in vain
        cluster = stack.enter_context(live_cluster(demo_model, tmp_path, workers=WORKERS, **settings))
        throughout = {"worker": cluster.workers[OUTLIVES].pid}
        throughout |= {} if coordinator else {"coordinator": cluster.coordinator.pid}
        asking = Asking(cluster, {"short": (prompt, reference), "long": (OTHER, other)}, throughout)
        ask = partial(asking.next, may_fail=not local, may_be_lost=coordinator)
        for _ in range(WARM):
            reference.check(cluster.answer(prompt, TOKENS))
        chaos = Chaos(cluster, links, SEED, outlives=OUTLIVES, coordinator=coordinator)
        try:
            with chaos:
                until, least = time.monotonic() + FOR_S, LEAST_ANSWERS if local and not coordinator else 1
                while (time.monotonic() < until or asking.answers < least) and chaos.error is None:
                    ask()
            everybody_computes(cluster, ask)
            print(asking.in_words(), dict(chaos.done))  # `pytest -s` shows it
            for name, growth in asking.growth.items():
                assert growth.each() < growth.most(sum(chaos.done.values())), (name, growth)
            assert max(asking.files.values()) < MOST_FILES
            assert sum(chaos.done.values()) >= FOR_S / 5, chaos.done
        except BaseException:
            print(f"seed {SEED}:", *chaos.diary, sep="\n")
            raise
