"""Windows in two halves, over real processes: two calls outstanding at each worker, and the bits of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import PATIENT, Answer, LiveCluster, Status, Then, in_force, live_cluster, worker_of
from reference_answer import Reference, reference_for

from coordinator.client import Client
from coordinator.sampling import Sampling

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

IN_HALVES = ["--halves", "on"]
HASTY = [*IN_HALVES, "--call-floor-ms", "300", "--beat-s", "0.2"]
BESIDE = [list(range(start, 6 * start)) for start in (3, 4, 9)]
TOKENS = 900
EVERY = 40
"""Answers from one problem to the next."""


def in_halves(answer: Answer) -> bool:
    """Whether most steps were: each half has a number."""
    return bool(answer.report["step"] > 1.5 * len(answer.ids))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("chunk", [7, 256])
def test_sequences_and_parts_of_a_prompt_give_the_same_bits(
    workers: int, chunk: int, demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    options = [*PATIENT, *IN_HALVES, "--chunk", str(chunk)]
    with live_cluster(demo_model, tmp_path, workers=workers, coordinator_options=options) as cluster:
        answer = cluster.answer(prompt, 150, beside=BESIDE)
    reference.check(answer)
    assert in_halves(answer)
    assert answer.report["late_replies"] == answer.report["replans"] == answer.report["dropped"] == 0
    assert answer.report["local_entries"] == 0


@pytest.mark.parametrize("name", ["bf16", "q8_0"])
def test_activations_of_every_form_travel(
    name: str, mini_model: Callable[[str], Path], prompt: list[int], tmp_path: Path
) -> None:
    model = mini_model(name)
    with live_cluster(model, tmp_path, workers=2, coordinator_options=[*PATIENT, *IN_HALVES]) as cluster:
        answer = cluster.answer(prompt, 60, beside=BESIDE)
    with reference_for(model) as reference:
        reference.check(answer)
    assert in_halves(answer)


def test_without_anybody_else_who_computes_windows_stay_whole(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(demo_model, tmp_path, workers=0, coordinator_options=IN_HALVES) as cluster:
        answer = cluster.answer(prompt, 50, beside=BESIDE)
    reference.check(answer)
    assert not in_halves(answer)


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(demo_model: Path, tmp_path: Path) -> Iterator[LiveCluster]:
    """Two workers that are soon taken for lost; prompts are read in many steps."""
    with live_cluster(demo_model, tmp_path, workers=2, coordinator_options=[*HASTY, "--chunk", "16"]) as cluster:
        yield cluster


def late_reply(report: Status) -> bool:
    return bool(report["late_replies"])


def test_a_worker_killed_with_two_calls_only_costs_time(
    cluster: LiveCluster, prompt: list[int], reference: Reference
) -> None:
    script = [Then(20, cluster.workers[0].kill), Then(lambda report: in_force(report) == 1)]
    answer = cluster.answer(prompt, TOKENS, script=script, beside=BESIDE)
    reference.check(answer)
    assert in_halves(answer)
    assert answer.report["replans"] > 0


def test_a_worker_frozen_with_two_calls_is_suspect_until_both_late_answers_have_come(
    cluster: LiveCluster, prompt: list[int], reference: Reference
) -> None:
    def is_in(state: str) -> Callable[[Status], bool]:
        return lambda report: worker_of(report, "worker-0")["state"] == state

    frozen = cluster.workers[0]
    script = [Then(20, frozen.freeze), Then(is_in("suspect"), frozen.thaw), Then(late_reply), Then(is_in("ready"))]
    answer = cluster.answer(prompt, TOKENS, script=script, beside=BESIDE)
    reference.check(answer)
    assert in_halves(answer)


def test_a_worker_may_join_between_steps(cluster: LiveCluster, prompt: list[int], reference: Reference) -> None:
    def three(report: Status) -> bool:
        return in_force(report) == 3 and worker_of(report, "worker-2")["calls"] > 0

    script = [Then(20, lambda: cluster.start_worker(2)), Then(three)]
    answer = cluster.answer(prompt, TOKENS, script=script, beside=BESIDE)
    reference.check(answer)
    assert in_halves(answer)


@pytest.mark.parametrize(
    "problems", [["late"], ["lost"], ["other-rows", "too-large", "not-finite"], ["twice", "older"]]
)
def test_answers_that_are_not_what_was_asked(
    problems: list[str], demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"coordinator_options": HASTY, "problems": {0: f"{','.join(problems)} {EVERY}"}}
    incidents = 2 * len(problems)
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster:
        script = [Then(lambda report: worker_of(report, "worker-0")["calls"] > EVERY * (incidents + 1))]
        answer = cluster.answer(prompt, TOKENS, script=script, beside=BESIDE)
    reference.check(answer)
    assert in_halves(answer)
    assert answer.report["replans"] + answer.report["late_replies"] >= incidents


def test_a_request_cancelled_in_mid_step_leaves_a_sound_cluster(
    cluster: LiveCluster, prompt: list[int], reference: Reference
) -> None:
    long = [1 + number % 90 for number in range(1900)]
    with Client(cluster.endpoint) as client:
        client.greet(10.0, cluster.check)
        request = client.submit(long, max_tokens=1, stop_ids=[], sampling=Sampling())
        cluster.wait_for(lambda report: any(done for done, _ in report["reading"]))
        client.cancel(request)
        cluster.wait_for(lambda report: report["requests"] == 0)
    reference.check(cluster.answer(prompt, 100, beside=BESIDE))
