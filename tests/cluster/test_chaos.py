"""Workers and links that fail at random, several at once, while answers are asked for without pause: the same bits.

Without local experts requests fail while all who hold some are away, by name, and are answered when somebody is back.
For a minute in all; EXPERTMESH_CHAOS_S says for how many seconds, EXPERTMESH_CHAOS_SEED what is random.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest
from chaos import Chaos
from clusters import HEDGING, LiveCluster, in_force, live_cluster, worker_of
from footprint import memory_of
from free_ports import three_ports
from reference_answer import Reference, reference_for
from relays import bad_link

from protocol.errors import RequestError

FOR_S = float(os.environ.get("EXPERTMESH_CHAOS_S", "60"))
SEED = int(os.environ.get("EXPERTMESH_CHAOS_SEED", "7"))
WORKERS = 3
MOST_MORE = 16 << 20
"""Bytes that the coordinator may have more at the end than when a third of the time was over."""
MOST_FILES = 150
TOKENS = 80
OTHER = np.random.default_rng(5).integers(100, 4000, 300).tolist()

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(FOR_S * 2 + 240)]


class Asking:
    """Answers, one after the other, and what the coordinator needs for them."""

    def __init__(self, cluster: LiveCluster, references: dict[str, tuple[list[int], Reference]]) -> None:
        self.answers = self.failed = 0
        self.memory: list[int] = []
        self.files = 0
        self._cluster = cluster
        self._references = list(references.values())
        self._coordinator = psutil.Process(cluster.coordinator.pid)

    def next(self, *, may_fail: bool) -> None:
        """One more. Without a local bank a request may fail, for all who hold something may be away at once."""
        prompt, reference = self._references[self.answers % len(self._references)]
        try:
            reference.check(self._cluster.answer(prompt, TOKENS))
            self.answers += 1
        except RequestError as error:
            if not may_fail or "nobody holds them, and local_experts is false" not in str(error):
                raise
            self.failed += 1
            self._cluster.wait_for(lambda report: in_force(report) > 0)  # it serves again when somebody is back
        self.memory.append(memory_of(self._coordinator.pid).anonymous)
        self.files = max(self.files, self._coordinator.num_fds())

    def more_memory(self) -> float:
        """Bytes: the middle of the last third, less that of the second."""
        third = len(self.memory) // 3
        return statistics.median(self.memory[2 * third :]) - statistics.median(self.memory[third : 2 * third])


@pytest.mark.parametrize("local", [True, False], ids=["with local experts", "without"])
def test_chaos(local: bool, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = three_ports()
        links = {number: stack.enter_context(bad_link(three_ports(), port)) for number in (1, 2)}
        other = stack.enter_context(reference_for(demo_model, OTHER, TOKENS))
        options = [*HEDGING, "--call-floor-ms", "300", "--beat-s", "0.2", "--chunk", "64"]
        options += [] if local else ["--no-local-experts"]
        settings = {"coordinator_options": options, "listen": links[1].target, "links": links}
        settings["worker_options"] = ["--drain-s", "2"]  # the last holder of an expert may wait in vain
        cluster = stack.enter_context(live_cluster(demo_model, tmp_path, workers=WORKERS, **settings))
        asking = Asking(cluster, {"short": (prompt, reference), "long": (OTHER, other)})
        chaos = Chaos(cluster, links, SEED)
        try:
            with chaos:
                until = time.monotonic() + FOR_S / 2
                while time.monotonic() < until and chaos.error is None:
                    asking.next(may_fail=not local)
            cluster.ready()  # whoever was hurt is back
            asking.next(may_fail=False)
            answer = cluster.answer(prompt, TOKENS)
            reference.check(answer)
            assert all(worker_of(answer.report, f"worker-{number}")["calls"] for number in range(WORKERS))
            assert asking.answers > (10 if local else 0)
            assert asking.more_memory() < MOST_MORE, asking.memory
            assert asking.files < MOST_FILES
            assert sum(chaos.done.values()) >= FOR_S / 10, chaos.done
        except BaseException:
            print(f"seed {SEED}:", *chaos.diary, sep="\n")
            raise
