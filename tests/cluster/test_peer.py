"""A peer answers like a worker: same bits alone, beside a worker, and when it is killed in mid-answer.

The device is emulated, so these are small models and few tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clusters import PATIENT, LiveCluster, Status, Then, in_force, live_cluster, worker_of
from reference_answer import reference_for
from small_models import small_model

from peer_gpu.slots import GIB
from protocol.model import Model
from protocol.stock import Stock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PROMPT = list(range(100, 110))
TOKENS = 20


def check(model: Path, cluster: LiveCluster, tokens: int = TOKENS, script: list[Then] | None = None) -> Status:
    """Ask once; the answer must be that of one process without any mesh. Its report."""
    answer = cluster.answer(PROMPT, tokens, script=script or ())
    with reference_for(model, PROMPT, 255 - len(PROMPT)) as reference:
        reference.check(answer)
    return answer.report


def half_room(model: Path, *peers: int) -> dict[str, Any]:
    """Settings of a cluster whose peers have room for half of the experts each."""
    with Model.open(model) as opened:
        half = Stock.of(opened.layout).bytes // 2
    return {"peers": peers, "peer_options": ["--vram-gib", repr(half / GIB)], "coordinator_options": PATIENT}


def experts_of(report: Status) -> dict[str, int]:
    """How many each member in force holds."""
    return {worker["name"]: worker["experts"] for worker in report["workers"] if worker["state"] == "ready"}


@pytest.mark.parametrize("name", ["q8_0", "k", "float-mix", "dense-first"])
def test_a_peer_beside_a_worker_gives_the_bits_of_one_process(tmp_path: Path, name: str) -> None:
    model = small_model(name, tmp_path)
    with live_cluster(model, tmp_path, workers=2, **half_room(model, 0)) as cluster:
        report = check(model, cluster)
    assert report["local_entries"] == 0
    assert [worker["role"] for worker in report["workers"]] == ["peer", "worker"]
    assert experts_of(report) == {"peer-0": 6, "worker-1": 6}
    assert all(worker["calls"] > 0 for worker in report["workers"])


def test_what_a_lone_peer_has_no_room_for_is_computed_by_the_coordinator(tmp_path: Path) -> None:
    model = small_model("q8_0", tmp_path)
    with live_cluster(model, tmp_path, workers=1, **half_room(model, 0)) as cluster:
        report = check(model, cluster)
    assert experts_of(report) == {"peer-0": 6}
    assert report["local_entries"] > 0


def test_a_peer_alone_gives_the_bits_of_one_process(tmp_path: Path) -> None:
    model = small_model("mixed", tmp_path)
    with live_cluster(model, tmp_path, workers=1, peers=[0], coordinator_options=PATIENT) as cluster:
        report = check(model, cluster)
    assert report["local_entries"] == 0
    (peer,) = report["workers"]
    assert (peer["name"], peer["isa"]) == ("peer-0", "an emulated device")


def test_peers_that_are_full_change_their_sets_and_go_on(tmp_path: Path) -> None:
    """The second begins to hold half of it, when it joins and when it is killed: the first one has no spare room."""

    def alone(report: Status) -> bool:
        return experts_of(report) == {"peer-0": 6}

    model = small_model("q8_0", tmp_path)
    with live_cluster(model, tmp_path, workers=1, **half_room(model, 0, 1)) as cluster:
        cluster.add_worker()
        assert experts_of(check(model, cluster)) == {"peer-0": 6, "peer-1": 6}
        script = [Then(10, cluster.workers[1].kill), Then(alone)]
        report = check(model, cluster, 240, script)
        assert report["local_entries"] > 0
        assert check(model, cluster)["local_entries"] > 0
        assert experts_of(cluster.status()) == {"peer-0": 6}


def test_a_killed_peer_only_costs_time_and_a_new_one_may_come(tmp_path: Path) -> None:
    def alone(report: Status) -> bool:
        return worker_of(report, "peer-0")["state"] == "lost" and in_force(report) == 1

    model = small_model("q8_0", tmp_path)
    with live_cluster(model, tmp_path, workers=2, **half_room(model, 0)) as cluster:
        report = check(model, cluster, 240, [Then(10, cluster.workers[0].kill), Then(alone)])
        assert worker_of(report, "peer-0")["calls"] > 0
        cluster.restart_worker(0)
        cluster.ready()
        report = check(model, cluster)
        assert report["local_entries"] == 0
        assert worker_of(report, "peer-0")["calls"] > 0
        assert cluster.stop() == [0, 0, 0], "a peer is stopped like a worker"
