"""Clusters over a model with dense first layers, scaled positions, and weights scaled as they come from the router."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import PATIENT, Then, in_force, live_cluster
from moe_models import write_model
from reference_answer import Reference, reference_for
from small_models import MODELS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

LAYERS_WITH_EXPERTS, EXPERTS, EXPERTS_USED = 2, 6, 3


@pytest.fixture(scope="module")
def dense_first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dense layer, then two with experts."""
    path = tmp_path_factory.mktemp("dense-first") / "dense-first.gguf"
    return write_model(path, **(MODELS["dense-first"] | {"ctx": 2048}))


@pytest.fixture(scope="module")
def reference(dense_first: Path) -> Iterator[Reference]:
    with reference_for(dense_first) as reference:
        yield reference


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 4])
def test_the_number_of_workers_changes_no_bit(
    workers: int, dense_first: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(dense_first, tmp_path, workers=workers, coordinator_options=PATIENT) as cluster:
        status = cluster.status()
        answer = cluster.answer(prompt, 100)
    reference.check(answer)
    assert [worker["experts"] for worker in status["workers"]] == [LAYERS_WITH_EXPERTS * EXPERTS] * workers
    entries = (len(prompt) + 99) * LAYERS_WITH_EXPERTS * EXPERTS_USED
    report = answer.report
    assert report["local_entries"] == (0 if workers else entries)
    assert sum(worker["entries"] for worker in report["workers"]) == (entries if workers else 0)
    assert report["late_replies"] == report["replans"] == report["dropped"] == 0


def test_a_killed_worker_costs_no_bit(
    dense_first: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(dense_first, tmp_path, workers=2, coordinator_options=PATIENT) as cluster:
        killed = Then(20, cluster.workers[0].kill)
        alone = Then(lambda report: in_force(report) == 1)
        answer = cluster.answer(prompt, 1900, script=[killed, alone])
    reference.check(answer)
    assert answer.report["placement"] == 2
    [left] = [worker for worker in answer.report["workers"] if worker["state"] == "ready"]
    assert left["experts"] == LAYERS_WITH_EXPERTS * EXPERTS
