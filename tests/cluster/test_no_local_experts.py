"""A coordinator that computes no experts: workers do all, requests fail by name without them, and it serves again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import HEDGING, PATIENT, LiveCluster, Then, in_force, live_cluster
from footprint import memory_of
from reference_answer import Reference

from protocol.errors import RequestError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

OPTIONS = ["--no-local-experts", *HEDGING, *PATIENT, "--beat-s", "0.4"]
"""Patient, for a stall of the only one who holds something would fail a request; who is frozen falls silent."""
TOKENS = 1900


@pytest.fixture
def cluster(demo_model: Path, tmp_path: Path) -> Iterator[LiveCluster]:
    with live_cluster(demo_model, tmp_path, workers=2, coordinator_options=OPTIONS) as cluster:
        yield cluster


def test_workers_compute_all(cluster: LiveCluster, prompt: list[int], reference: Reference) -> None:
    answer = cluster.answer(prompt, 100)
    reference.check(answer)
    assert answer.report["local_entries"] == 0


def test_workers_of_one_machine_compute_what_one_of_them_cannot_any_more(
    cluster: LiveCluster, prompt: list[int], reference: Reference
) -> None:
    """They hold the same, so nothing fails; the coordinator itself has computed nothing."""
    frozen, killed = cluster.workers
    script = [
        Then(20, frozen.freeze),
        Then(lambda report: in_force(report) == 1, frozen.thaw),
        Then(lambda report: in_force(report) == 2, killed.kill),
        Then(lambda report: in_force(report) == 1),
    ]
    answer = cluster.answer(prompt, TOKENS, script=script)
    reference.check(answer)
    assert answer.report["local_entries"] == 0


def test_with_no_worker_left_requests_fail_by_name_until_there_is_one_again(
    cluster: LiveCluster, prompt: list[int], reference: Reference
) -> None:
    def kill_all() -> None:
        for worker in cluster.workers:
            worker.kill()

    with pytest.raises(
        RequestError, match=r"^layer \d: experts? [\d, ]+: nobody holds them, and local_experts is false"
    ):
        cluster.answer(prompt, TOKENS, script=[Then(20, kill_all)], more=TOKENS)
    with pytest.raises(RequestError, match=r"^layer 0: ") as caught:
        cluster.answer(prompt, 20)
    assert all(f"; worker-{number} is gone: " in str(caught.value) for number in (0, 1)), "in the order of their loss"
    cluster.restart_worker(0)
    cluster.wait_for(lambda report: in_force(report) == 1)
    reference.check(cluster.answer(prompt, 100))


def test_it_has_no_memory_for_experts(demo_model: Path, tmp_path: Path, prompt: list[int]) -> None:
    """Pages of the file's experts are in nobody's memory but the worker's."""
    resident = []
    for name, options in (("with", []), ("without", ["--no-local-experts"])):
        folder = tmp_path / name
        folder.mkdir()
        with live_cluster(demo_model, folder, workers=0, coordinator_options=options) as cluster:
            if not options:
                cluster.answer(prompt, 40)  # by the coordinator itself
            cluster.add_worker()
            cluster.answer(prompt, 40)
            resident.append(memory_of(cluster.coordinator.pid).resident)
    assert resident[1] < resident[0] - (4 << 20), resident
