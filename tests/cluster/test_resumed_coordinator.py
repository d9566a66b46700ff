"""A coordinator that is started again finds its workers loaded: nothing is read again, nobody is waited for long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import PATIENT, Condition, LiveCluster, Status, all_copied, in_force, live_cluster, worker_of
from reference_answer import Reference

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

WORKERS = 3
SOON_S = 30.0
"""From its end to a whole answer, however busy the machine: half of what an answer is waited for."""
COPIES = ["--source", "copies", "--ram-gib", "0.1"]


@pytest.fixture
def cluster(demo_model: Path, tmp_path: Path) -> Iterator[LiveCluster]:
    """Three workers that copy their experts to memory."""
    settings = {"coordinator_options": PATIENT, "worker_options": COPIES}
    with live_cluster(demo_model, tmp_path, workers=WORKERS, **settings) as cluster:
        yield cluster


def answers_soon(cluster: LiveCluster, prompt: list[int], reference: Reference) -> None:
    """Kill the coordinator, start it again, and have a whole answer within the bound."""
    killed = cluster.resume_coordinator()
    reference.check(cluster.answer(prompt, 20))
    assert time.monotonic() - killed < SOON_S


def loaded(report: Status) -> dict[str, tuple[int, int]]:
    """Of each worker that is there: its process, and the bytes that it has ever loaded."""
    there = [row for row in report["workers"] if row["state"] == "ready"]
    return {row["name"]: (row["pid"], row["tiers"]["loaded_bytes"]) for row in there}


def beaten(count: int) -> Condition:
    """So many have told what they loaded."""
    return lambda report: sum(bool(row["tiers"]) and row["state"] == "ready" for row in report["workers"]) == count


def test_workers_are_still_loaded(cluster: LiveCluster, prompt: list[int], reference: Reference) -> None:
    reference.check(cluster.answer(prompt, 20))
    before = loaded(cluster.wait_for(all_copied))
    for _ in range(2):
        answers_soon(cluster, prompt, reference)
        report = cluster.wait_for(beaten(WORKERS))
        assert loaded(report) == before, "nothing is read again"


def test_whoever_came_late_keeps_what_it_was_given(
    cluster: LiveCluster, prompt: list[int], reference: Reference
) -> None:
    """So nobody has what it would have been given if all of them had come at once."""
    cluster.ready()
    cluster.workers[0].kill()
    cluster.wait_for(lambda report: in_force(report) == WORKERS - 1)
    cluster.restart_worker(0)
    placement = cluster.ready()["placement"]
    reference.check(cluster.answer(prompt, 20))
    there = loaded(cluster.wait_for(all_copied))
    experts = {row["name"]: row["experts"] for row in cluster.status()["workers"]}
    assert placement > 1
    answers_soon(cluster, prompt, reference)
    report = cluster.wait_for(lambda report: in_force(report) == WORKERS and beaten(WORKERS)(report))
    assert report["placement"] == 1, "the first placement is that one already"
    assert loaded(report) == there, "nothing is read again"
    assert {row["name"]: row["experts"] for row in report["workers"]} == experts


def test_it_goes_on_without_who_is_gone(cluster: LiveCluster, prompt: list[int], reference: Reference) -> None:
    cluster.workers[1].kill()
    answers_soon(cluster, prompt, reference)
    report = cluster.wait_for(lambda report: in_force(report) == WORKERS - 1)
    assert report["state"] == "ready"
    cluster.restart_worker(1)
    report = cluster.ready()
    assert worker_of(report, "worker-1")["pid"] == cluster.workers[1].pid
    reference.check(cluster.answer(prompt, 20))
