"""Real processes give the bits of one process, whatever their number, threads, instruction sets and chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from clusters import PATIENT, live_cluster
from reference_answer import Reference, reference_for

import native

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 4])
def test_the_number_of_workers_changes_no_bit(
    workers: int, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(demo_model, tmp_path, workers=workers, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 200)
    reference.check(answer)
    assert len(answer.ids) == 200
    report = answer.report
    assert [worker["calls"] > 0 for worker in report["workers"]] == [True] * workers
    entries = (len(prompt) + 199) * 6 * 4  # rows x layers x experts of a row
    assert report["local_entries"] == (0 if workers else entries)
    assert sum(worker["entries"] for worker in report["workers"]) == (entries if workers else 0)
    assert report["late_replies"] == report["replans"] == report["dropped"] == 0


@pytest.mark.parametrize("isa", native.available_isas())
def test_threads_instruction_sets_and_chunks_change_no_bit(
    isa: str, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    best = native.available_isas()[-1]
    settings = {
        "coordinator_options": [*PATIENT, "--threads", "2", "--chunk", "7"],
        "worker_options": ["--threads", "2"],
        "isas": [isa, best],
        "coordinator_isa": isa,
    }
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster:
        status = cluster.status()
        assert [status["isa"], *(worker["isa"] for worker in status["workers"])] == [isa, isa, best]
        reference.check(cluster.answer(prompt, 200))


def test_seven_others_beside_it_change_no_bit(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    others = [list(range(start, start + 5 * start)) for start in range(1, 8)]
    with live_cluster(demo_model, tmp_path, workers=2, coordinator_options=PATIENT) as cluster:
        answers = cluster.answers([*others[:4], prompt, *others[4:]], 200)
    reference.check(answers[4])
    assert [len(answer.ids) for answer in answers] == [200] * 8
    steps = answers[4].report["step"]
    assert steps < 8 * 200, "they did not share steps"


@pytest.mark.parametrize("name", ["bf16", "q8_0"])
def test_activations_of_other_weight_types_travel_too(
    name: str, mini_model: Callable[[str], Path], prompt: list[int], tmp_path: Path
) -> None:
    model = mini_model(name)  # the first sends fp32 activations, the second quantised ones
    with live_cluster(model, tmp_path, workers=2, coordinator_options=PATIENT) as cluster:
        answer = cluster.answer(prompt, 60)
    with reference_for(model) as reference:
        reference.check(answer)
    assert answer.report["local_entries"] == 0
