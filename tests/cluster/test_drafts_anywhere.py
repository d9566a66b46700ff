"""Drafts in clusters of real processes: the bits of one process without them, whoever is killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters import PATIENT, LiveCluster, Status, Then, in_force, live_cluster
from device_engine import experts_gib
from reference_answer import Reference, reference_for

from coordinator.sampling import Sampling

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

IMPORTS = [1481, 1366, 198] * 3
"""Three lines of Python, of which the demo model writes more, and the same again."""
WAYS = [
    Sampling(),
    Sampling(temperature=0.7, top_k=40, seed=3),
    Sampling(temperature=0.5, repeat_penalty=0.5, repeat_window=3),
    Sampling(repeat_penalty=1.2, repeat_window=20),
]
FOND = Sampling(temperature=0.3, repeat_penalty=0.1, repeat_window=2)
"""Of what was said just now: even random weights say it again and again."""


@pytest.fixture(scope="module")
def imports(demo_model: Path) -> Iterator[Reference]:
    """What follows IMPORTS."""
    with reference_for(demo_model, IMPORTS) as reference:
        yield reference


@pytest.fixture
def cluster(demo_model: Path, tmp_path: Path) -> Iterator[LiveCluster]:
    """Two workers; eight drafts unless a request says otherwise."""
    options = [*PATIENT, "--drafts", "8"]
    with live_cluster(demo_model, tmp_path, workers=2, coordinator_options=options) as cluster:
        yield cluster


def test_drafts_change_no_bit(cluster: LiveCluster, imports: Reference) -> None:
    answer = cluster.answer(IMPORTS, 300)
    imports.check(answer)
    drafts = answer.report["drafts"]
    assert drafts["steps"] + drafts["accepted"] == 299
    assert drafts["accepted"] > 0
    assert cluster.status()["drafts"] == drafts


@pytest.mark.parametrize("way", WAYS, ids=["greedy", "sampled", "fond", "varied"])
def test_a_sampled_answer_is_that_without_drafts(cluster: LiveCluster, way: Sampling) -> None:
    without = cluster.answer(IMPORTS, 120, sampling=way, drafts=0)
    assert without.report["drafts"] == {"steps": 119, "drafted": 0, "accepted": 0}
    drafting = cluster.answer(IMPORTS, 120, sampling=way)
    assert (drafting.ids, drafting.sha256_logits) == (without.ids, without.sha256_logits)


def test_others_with_drafts_beside_it_change_no_bit(
    cluster: LiveCluster, prompt: list[int], reference: Reference, imports: Reference
) -> None:
    answers = cluster.answers([IMPORTS, prompt, IMPORTS, IMPORTS], 150)
    for answer, expected in zip(answers, (imports, reference, imports, imports), strict=True):
        expected.check(answer)
        assert len(answer.ids) == 150


def test_a_killed_worker_only_costs_time(cluster: LiveCluster, imports: Reference) -> None:
    def alone(report: Status) -> bool:
        return in_force(report) == 1

    answer = cluster.answer(IMPORTS, 1900, script=[Then(20, cluster.workers[0].kill), Then(alone)])
    imports.check(answer)
    assert answer.report["drafts"]["accepted"] > 0


@pytest.mark.parametrize("sampling", [Sampling(), FOND])
def test_a_coordinator_on_a_device_with_drafts_gives_the_same_bits(
    sampling: Sampling, mini_model: Callable[[str], Path], prompt: list[int], tmp_path: Path
) -> None:
    model = mini_model("q8_0")
    gpu = ["--device", "cuda:0", "--vram-gib", f"{experts_gib(model, 0.5):.12f}"]
    settings = {"coordinator_module": "emulated_coordinator", "coordinator_options": [*PATIENT, *gpu]}
    with live_cluster(model, tmp_path, workers=2, **settings) as cluster:
        script = [Then(9, cluster.workers[0].kill), Then(lambda report: in_force(report) == 1)]
        without = cluster.answer(prompt, 24, sampling=sampling, drafts=0)
        drafting = cluster.answer(prompt, 24, sampling=sampling, drafts=4, script=script)
    tokens = len(drafting.ids)
    assert drafting.ids == without.ids[:tokens]
    if tokens == 24:
        assert drafting.sha256_logits == without.sha256_logits
    if sampling is FOND:
        assert drafting.report["drafts"]["accepted"] > 0
    else:
        with reference_for(model) as reference:
            reference.check(drafting)
