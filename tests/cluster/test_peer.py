"""A peer answers like a worker: same bits alone, beside a worker, and when it is killed in mid-answer.

The device is emulated, so these are small models and few tokens.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import PATIENT, LiveCluster, Status, Then, in_force, live_cluster, worker_of
from reference_answer import reference_for
from small_models import small_model

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PROMPT = list(range(100, 110))
TOKENS = 20


def check(model: Path, cluster: LiveCluster, tokens: int = TOKENS, script: list[Then] | None = None) -> Status:
    """Ask once; the answer must be that of one process without any mesh. Its report."""
    answer = cluster.answer(PROMPT, tokens, script=script or ())
    with reference_for(model, PROMPT, 255 - len(PROMPT)) as reference:
        reference.check(answer)
    return answer.report


@pytest.mark.parametrize("name", ["q8_0", "k", "float-mix", "dense-first"])
def test_a_peer_beside_a_worker_gives_the_bits_of_one_process(tmp_path: Path, name: str) -> None:
    model = small_model(name, tmp_path)
    with live_cluster(model, tmp_path, workers=2, peers=[0], coordinator_options=PATIENT) as cluster:
        report = check(model, cluster)
    assert report["local_entries"] == 0
    assert [worker["role"] for worker in report["workers"]] == ["peer", "worker"]
    assert all(worker["calls"] > 0 for worker in report["workers"])


def test_a_peer_alone_gives_the_bits_of_one_process(tmp_path: Path) -> None:
    model = small_model("mixed", tmp_path)
    with live_cluster(model, tmp_path, workers=1, peers=[0], coordinator_options=PATIENT) as cluster:
        report = check(model, cluster)
    assert report["local_entries"] == 0
    (peer,) = report["workers"]
    assert (peer["name"], peer["isa"]) == ("peer-0", "an emulated device")


def test_a_killed_peer_only_costs_time_and_a_new_one_may_come(tmp_path: Path) -> None:
    def alone(report: Status) -> bool:
        return worker_of(report, "peer-0")["state"] == "gone" and in_force(report) == 1

    model = small_model("q8_0", tmp_path)
    with live_cluster(model, tmp_path, workers=2, peers=[0], coordinator_options=PATIENT) as cluster:
        report = check(model, cluster, 240, [Then(10, cluster.workers[0].kill), Then(alone)])
        assert worker_of(report, "peer-0")["calls"] > 0
        cluster.restart_worker(0)
        cluster.ready()
        report = check(model, cluster)
        assert report["local_entries"] == 0
        assert worker_of(report, "peer-0")["calls"] > 0
        assert cluster.stop() == [0, 0, 0], "a peer is stopped like a worker"
