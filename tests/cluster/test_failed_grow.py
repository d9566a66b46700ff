"""A newcomer that cannot load its part moves nobody, in mid-answer; the next one joins as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import PATIENT, LiveCluster, RealProcess, Status, Then, all_copied, in_force, live_cluster, worker_of
from reference_answer import Reference

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

COPIES = ["--source", "copies", "--ram-gib", "0.1"]


def start_unable(cluster: LiveCluster, model: Path, how: str) -> RealProcess:
    options = ["--connect", cluster.endpoint, "--model", str(model), "--name", "unable", *COPIES]
    return cluster.start("unable", "unable_worker", options, {"EXPERTMESH_TEST_UNABLE": how})


def loaded(report: Status) -> list[int]:
    """Bytes that each of the first two workers has ever loaded."""
    return [worker_of(report, f"worker-{number}")["tiers"]["loaded_bytes"] for number in range(2)]


@pytest.mark.parametrize("how", ["fails", "dies"])
def test_who_cannot_load_moves_nobody(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path, how: str
) -> None:
    settings = {"coordinator_options": PATIENT, "worker_options": COPIES}
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster:
        before = cluster.wait_for(all_copied)

        def is_out(report: Status) -> bool:
            rows = [row for row in report["workers"] if row["name"] == "unable"]
            return bool(rows) and rows[0]["state"] == ("failed" if how == "fails" else "lost")

        script = [Then(20, lambda: start_unable(cluster, demo_model, how)), Then(is_out)]
        answer = cluster.answer(prompt, 1900, script=script)
        reference.check(answer)
        report = cluster.status()
        assert report["placement"] == before["placement"], "what was in force stays"
        assert in_force(report) == 2
        assert report["replans"] == report["local_entries"] == 0
        assert loaded(report) == loaded(before), "and nobody loads anything"
        if how == "fails":
            assert worker_of(report, "unable")["reason"] == (
                "cannot hold its experts: layer 2, expert 10: the disk is broken"
            )
        cluster.add_worker() if how == "dies" else cluster.start_worker(2)
        report = cluster.wait_for(lambda report: in_force(report) == 3)
        reference.check(cluster.answer(prompt, 20))
