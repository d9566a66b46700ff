"""Workers without a model file: they fetch the weights of their experts, and give the bits that a file gives."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from clusters import PATIENT, LiveCluster, Status, Then, in_force, live_cluster, worker_of
from free_ports import four_ports
from key_folders import key_folder
from offers import are_offered
from packs import pack_of
from reference_answer import Reference

from protocol.bulk import BULK_FRAME_BYTES
from protocol.errors import ConfigError
from protocol.messages import PROTOCOL, AskModel
from protocol.model import Model
from protocol.neighbours import bulk_endpoint
from protocol.wire import Dialled

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

SLOW = ("--mb-s", "3")


@pytest.fixture(scope="module")
def expert_bytes(demo_model: Path) -> int:
    """Of the demo model."""
    with Model.open(demo_model) as opened:
        return sum(role.expert_bytes for role in opened.layout.role_tensors()) * opened.layout.experts


def fetched(report: Status, number: int) -> int:
    """Bytes, by the latest beat; 0 before it has joined."""
    rows = [worker for worker in report["workers"] if worker["name"] == f"worker-{number}"]
    return sum(int(row["tiers"].get("fetched_bytes", 0)) for row in rows)


def beaten(*numbers: int, at_least: int = 1) -> Callable[[Status], bool]:
    """Whether these workers have told in a beat that they fetched so much, all together."""
    return lambda report: sum(fetched(report, number) for number in numbers) >= at_least


@pytest.mark.parametrize("packed", [False, True])
def test_workers_fetch_their_experts_and_no_others_and_give_the_same_bits(
    packed: bool, demo_model: Path, prompt: list[int], reference: Reference, expert_bytes: int, tmp_path: Path
) -> None:
    model = pack_of(demo_model, tmp_path / "p.gguf") if packed else demo_model
    caches = {number: tmp_path / f"cache-{number}" for number in range(3)}
    with live_cluster(model, tmp_path, workers=3, caches=caches, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 200)
        report = cluster.wait_for(beaten(0, 1, 2, at_least=expert_bytes))
    reference.check(answer)
    assert answer.report["local_entries"] == 0
    assert all(worker["calls"] for worker in answer.report["workers"])
    assert min(fetched(report, number) for number in range(3)) < expert_bytes  # the first may have been alone
    assert all(len(list(cache.iterdir())) == 1 for cache in caches.values())


def test_weights_travel_encrypted_where_there_are_keys(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    keyed = {"keys": key_folder(tmp_path / "keys"), "listen": f"tcp://127.0.0.1:{four_ports()}"}
    settings = {"caches": {0: tmp_path / "cache"}, "coordinator_options": PATIENT, **keyed}
    with live_cluster(demo_model, tmp_path, workers=1, **settings) as cluster:
        answer = cluster.answer(prompt, 50)
        with Dialled(bulk_endpoint(cluster.endpoint), max_frame_bytes=BULK_FRAME_BYTES) as stranger:
            stranger.send(AskModel(protocol=PROTOCOL))
            with pytest.raises(ConfigError):
                stranger.receive(10.0)
    reference.check(answer)
    assert answer.report["local_entries"] == 0


def test_workers_of_one_cache_fetch_each_piece_once(
    demo_model: Path, prompt: list[int], reference: Reference, expert_bytes: int, tmp_path: Path
) -> None:
    caches = dict.fromkeys(range(3), tmp_path / "cache")
    with live_cluster(demo_model, tmp_path, workers=3, caches=caches, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 100)
        cluster.wait_for(beaten(0, 1, 2, at_least=expert_bytes))
        assert sum(fetched(cluster.status(), number) for number in range(3)) == expert_bytes
    reference.check(answer)
    assert answer.report["local_entries"] == 0


def test_a_worker_that_is_killed_goes_on_where_it_was(
    demo_model: Path, prompt: list[int], reference: Reference, expert_bytes: int, tmp_path: Path
) -> None:
    cluster = LiveCluster(
        demo_model,
        tmp_path,
        workers=1,
        caches={0: tmp_path / "cache"},
        weights_options=("--mb-s", "1.5"),  # seconds for the second half
        coordinator_options=PATIENT,
    )
    try:
        before = fetched(cluster.wait_for(beaten(0, at_least=expert_bytes // 2)), 0)
        assert in_force(cluster.status()) == 0
        cluster.workers[0].kill()
        cluster.restart_worker(0)
        cluster.ready()
        answer = cluster.answer(prompt, 50)
        after = fetched(cluster.wait_for(beaten(0)), 0)
        cluster.stop()
    finally:
        cluster.close()
    reference.check(answer)
    assert answer.report["local_entries"] == 0
    assert 0 < after < expert_bytes - before // 2  # a layer at most, of six, was written and not marked


def test_an_answer_goes_on_while_a_worker_fetches_and_joins(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    settings = {"caches": {1: tmp_path / "cache"}, "weights_options": ("--mb-s", "6"), "coordinator_options": PATIENT}
    with live_cluster(demo_model, tmp_path, workers=1, **settings) as cluster:
        script = [
            Then(5, lambda: cluster.workers.append(cluster.start_worker(1))),
            Then(lambda report: len(report["workers"]) == 2 and fetched(report, 1) > 0),
            Then(lambda report: in_force(report) == 2),
        ]
        answer = cluster.answer(prompt, 1800, script=script)
    reference.check(answer)
    assert worker_of(answer.report, "worker-1")["calls"]


def test_weights_go_on_when_the_process_that_gives_them_is_killed(
    demo_model: Path, prompt: list[int], reference: Reference, expert_bytes: int, tmp_path: Path
) -> None:
    settings = {"caches": {0: tmp_path / "cache"}, "weights_options": SLOW, "coordinator_options": PATIENT}
    cluster = LiveCluster(demo_model, tmp_path, workers=1, **settings)
    try:
        cluster.wait_for(beaten(0))
        cluster.weights.kill()
        cluster.start_weights()
        report = cluster.ready()
        answer = cluster.answer(prompt, 50)
        cluster.stop()
    finally:
        cluster.close()
    reference.check(answer)
    assert fetched(report, 0) <= expert_bytes


def test_damaged_pieces_are_fetched_again_and_named(
    demo_model: Path,
    prompt: list[int],
    reference: Reference,
    expert_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXPERTMESH_TEST_DAMAGE", "2")
    settings = {"caches": {0: tmp_path / "cache"}, "weights_module": "damaging_weights"}
    with live_cluster(demo_model, tmp_path, workers=1, coordinator_options=PATIENT, **settings) as cluster:
        answer = cluster.answer(prompt, 50)
        assert "layer 0, expert 0: a piece of its gate (" in cluster.logs()
        report = cluster.wait_for(beaten(0, at_least=expert_bytes))
    reference.check(answer)
    assert worker_of(report, "worker-0")["tiers"]["fetched_damaged"] == 2


def test_weights_that_always_come_damaged_are_refused_by_name(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPERTMESH_TEST_DAMAGE", "-1")
    settings = {"caches": {0: tmp_path / "cache"}, "weights_module": "damaging_weights"}
    cluster = LiveCluster(demo_model, tmp_path, workers=1, coordinator_options=PATIENT, **settings)
    try:
        report = cluster.wait_for(lambda report: any(worker["state"] == "failed" for worker in report["workers"]))
        cluster.stop()
    finally:
        cluster.close()
    reason = worker_of(report, "worker-0")["reason"]
    assert "layer 0, expert 0: the weights of its gate cannot be fetched: a piece came damaged 3 times from" in reason


def test_weights_come_from_another_worker_s_cache_too(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    caches = {number: tmp_path / f"cache-{number}" for number in range(2)}
    with live_cluster(demo_model, tmp_path, workers=1, caches=caches, coordinator_options=PATIENT) as cluster:
        place = f"{cluster.endpoint}-give"
        options = ["--cache", str(caches[0]), "--connect", cluster.endpoint, "--listen", place]
        giver = cluster.start("giver", "expert_worker.weights.main", options)
        assert are_offered(1.0, cluster.endpoint, demo_model)
        cluster.add_worker()
        answer = cluster.answer(prompt, 100)
        assert f"{place} gives weights too: 96 experts" in logged(tmp_path, "worker-1")
        giver.signal(signal.SIGTERM)
        assert giver.wait() == 0
    reference.check(answer)
    assert all(worker["calls"] for worker in answer.report["workers"])
    [pieces] = re.findall(r"gave (\d+) pieces", logged(tmp_path, "giver"))
    assert int(pieces) > 48  # of 144, half a model


def logged(folder: Path, name: str) -> str:
    return (folder / f"{name}.log").read_text()
