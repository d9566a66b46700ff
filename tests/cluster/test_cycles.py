"""Workers join and drain again and again: what the others use does not grow, and the bits stay the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from clusters import PATIENT, LiveCluster, in_force, live_cluster, worker_of
from command_line import wait_until
from footprint import Use, has_no_more, use_of
from reference_answer import Reference

from coordinator.client import Client

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

CYCLES = 20
WARM = 5
"""Cycles after which everything that is kept once has been made."""
SETTLED_S = 10.0
GROWTH = 2 << 20
"""Bytes that all further cycles together may leave behind in a process: an arena of malloc's, no set of experts."""


def cycle(cluster: LiveCluster, client: Client, number: int) -> None:
    """One worker more joins, computes, and is drained."""
    name = "worker-1"
    newcomer = cluster.start_worker(1)
    cluster.wait_for(lambda report: in_force(report) == 2 and worker_of(report, name)["pid"] == newcomer.pid)
    client.drain(name, 30.0)
    assert newcomer.wait() == 0


def test_twenty_workers_come_and_go_and_leave_nothing(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with (
        live_cluster(demo_model, tmp_path, workers=1, coordinator_options=PATIENT) as cluster,
        Client(cluster.endpoint) as client,
    ):
        client.greet(10.0)
        watched = {"coordinator": cluster.coordinator, "worker-0": cluster.workers[0]}
        uses: dict[str, list[Use]] = {name: [] for name in watched}
        for number in range(CYCLES):
            cycle(cluster, client, number)
            reference.check(cluster.answer(prompt, 5))
            for name, process in watched.items():
                uses[name].append(use_of(process.pid))
        for name, process in watched.items():
            warm = uses[name][WARM - 1]
            assert wait_until(partial(has_no_more, process.pid, warm), SETTLED_S), (name, uses[name])
        report = cluster.status()
        assert report["placement"] >= 2 * CYCLES
        assert report["replans"] == 0
        assert len(report["workers"]) == 2, "of all that left under one name the last is remembered"
    for name, seen in uses.items():
        warm, last = seen[WARM - 1], seen[-1]
        assert last.anonymous - warm.anonymous < GROWTH, (name, seen)
