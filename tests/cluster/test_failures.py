"""A worker may die, freeze or return at any token: the answer goes on, same bits, and late replies are dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import PATIENT, LiveCluster, Status, Then, in_force, is_away, live_cluster, worker_of
from reference_answer import Reference

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

HASTY = ["--call-floor-ms", "300", "--beat-s", "0.2"]
TOKENS = 1900
NOTICED_S = 5.0
"""A closed connection is looked for every 0.05 s; the rest is for a busy machine, and far below any deadline."""


@pytest.fixture
def cluster(demo_model: Path, tmp_path: Path) -> Iterator[LiveCluster]:
    """Two workers, of which the second is late with every 300th answer."""
    settings = {"coordinator_options": HASTY, "problems": {1: "late 300"}}
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster:
        yield cluster


@pytest.fixture
def sound_cluster(demo_model: Path, tmp_path: Path) -> Iterator[LiveCluster]:
    """Two workers that are never late of themselves."""
    with live_cluster(demo_model, tmp_path, workers=2, coordinator_options=HASTY) as cluster:
        yield cluster


def late_reply(report: Status) -> bool:
    return bool(report["late_replies"])


def test_a_killed_worker_only_costs_time(cluster: LiveCluster, prompt: list[int], reference: Reference) -> None:
    def alone(report: Status) -> bool:
        return worker_of(report, "worker-0")["state"] == "lost" and in_force(report) == 1

    answer = cluster.answer(prompt, TOKENS, script=[Then(20, cluster.workers[0].kill), Then(alone), Then(late_reply)])
    reference.check(answer)
    assert answer.report["replans"] > 0
    assert worker_of(answer.report, "worker-0")["reason"] == "its connection is closed or full"


@pytest.mark.parametrize("others", [1, 0], ids=["another worker takes over", "the coordinator takes over"])
def test_a_death_is_noticed_by_the_closed_connection(
    others: int, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    """No other sign comes sooner than in 12 s, of silence: no call is hedged, and deadlines are at 20 s."""
    settings = {"coordinator_options": [*PATIENT, "--beat-s", "2"]}
    with live_cluster(demo_model, tmp_path, workers=1 + others, **settings) as cluster:

        def away(report: Status) -> bool:
            return is_away(report, "worker-0")

        answer = cluster.answer(prompt, TOKENS, script=[Then(20, cluster.workers[0].kill), Then(away)])
        reference.check(answer)
        assert answer.longest_pause_s() < NOTICED_S
        assert worker_of(answer.report, "worker-0")["reason"] == "its connection is closed or full"
        assert bool(answer.report["local_entries"]) != bool(others)


def test_a_worker_frozen_for_a_moment_is_suspect_until_its_late_answer(
    sound_cluster: LiveCluster, prompt: list[int], reference: Reference
) -> None:
    def suspect(report: Status) -> bool:
        return worker_of(report, "worker-0")["state"] == "suspect"

    def trusted(report: Status) -> bool:
        return worker_of(report, "worker-0")["state"] == "ready"

    frozen = sound_cluster.workers[0]
    script = [Then(20, frozen.freeze), Then(suspect, frozen.thaw), Then(late_reply), Then(trusted)]
    answer = sound_cluster.answer(prompt, TOKENS, script=script)
    reference.check(answer)
    assert answer.report["replans"] > 0


def test_a_worker_frozen_for_long_is_given_up_and_joins_again(
    sound_cluster: LiveCluster, prompt: list[int], reference: Reference
) -> None:
    def given_up(report: Status) -> bool:
        return worker_of(report, "worker-0")["state"] == "lost"

    def back(report: Status) -> bool:
        return in_force(report) == 2

    frozen = sound_cluster.workers[0]
    script = [Then(20, frozen.freeze), Then(given_up, frozen.thaw), Then(back), Then(late_reply)]
    answer = sound_cluster.answer(prompt, TOKENS, script=script)
    reference.check(answer)
    assert worker_of(answer.report, "worker-0")["pid"] == frozen.pid


def test_a_restarted_worker_is_a_new_one(cluster: LiveCluster, prompt: list[int], reference: Reference) -> None:
    pids = [cluster.workers[0].pid]

    def restart() -> None:
        cluster.workers[0].kill()
        pids.append(cluster.restart_worker(0).pid)

    def back(report: Status) -> bool:
        return in_force(report) == 2 and worker_of(report, "worker-0")["pid"] == pids[-1]

    answer = cluster.answer(prompt, TOKENS, script=[Then(20, restart), Then(back), Then(late_reply)])
    reference.check(answer)
    assert answer.report["placement"] >= 2
    assert worker_of(answer.report, "worker-0")["calls"] > 0


def test_with_all_workers_dead_the_coordinator_goes_on_alone(
    cluster: LiveCluster, prompt: list[int], reference: Reference
) -> None:
    def kill_all() -> None:
        for worker in cluster.workers:
            worker.kill()

    answer = cluster.answer(prompt, TOKENS, script=[Then(20, kill_all), Then(lambda report: in_force(report) == 0)])
    reference.check(answer)


def test_a_worker_may_join_at_any_token(cluster: LiveCluster, prompt: list[int], reference: Reference) -> None:
    def three(report: Status) -> bool:
        return in_force(report) == 3 and worker_of(report, "worker-2")["calls"] > 0

    answer = cluster.answer(prompt, TOKENS, script=[Then(20, lambda: cluster.start_worker(2)), Then(three)])
    reference.check(answer)
