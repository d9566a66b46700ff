"""Answers that are late, lost, repeated, garbled, or not what was asked are dropped and counted; the bits are the same.

What each of them does to a single layer is tested without processes, in tests/coordinator/test_dispatch.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from clusters import PATIENT, Answer, LiveCluster, Then, in_force, live_cluster, worker_of
from reference_answer import Reference

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

EVERY = 40
"""Answers from one problem to the next."""
HASTY = ["--call-floor-ms", "300"]
"""For answers that come late, or never."""
QUARANTINED = (
    r"quarantined: its bits differ: layer \d+, (expert \d+|one of experts [\d, .]+): "
    r"digest [0-9a-f]{16} found, [0-9a-f]{16} expected"
)


@pytest.fixture
def answer_beside(demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path) -> Any:
    """Gives the answer of a sound worker and one with these problems, each of which has come up twice by its end."""

    def answer(*problems: str, options: Sequence[str] = PATIENT) -> Answer:
        settings: dict[str, Any] = {
            "coordinator_options": options,
            "problems": {0: f"{','.join(problems)} {EVERY}"},
        }
        incidents = 2 * len(problems)
        with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster:
            steps = [Then(lambda report: worker_of(report, "worker-0")["calls"] > EVERY * (incidents + 1))]
            found = cluster.answer(prompt, 1900, script=steps)
        reference.check(found)
        return found

    return answer


def test_late_answers_are_dropped_and_the_worker_gets_work_again(answer_beside: Any) -> None:
    report = answer_beside("late", options=HASTY).report
    assert report["late_replies"] >= 2
    assert report["replans"] >= 2


def test_a_worker_whose_answers_get_lost_gets_work_again(answer_beside: Any) -> None:
    report = answer_beside("lost", options=HASTY).report
    assert report["replans"] >= 2


def test_wrong_answers_are_computed_by_others(answer_beside: Any) -> None:
    problems = ["other-rows", "no-rows", "narrow", "too-large", "not-finite"]
    report = answer_beside(*problems).report
    assert report["dropped"] == report["replans"] >= 2 * len(problems)


def test_what_comes_beside_the_right_answer_changes_nothing(answer_beside: Any) -> None:
    late, strange = ["twice", "older", "other-attempt"], ["stale-session", "future-step", "truncated"]
    report = answer_beside(*late, *strange).report
    assert report["late_replies"] >= 2 * len(late)
    assert report["dropped"] >= 2 * len(strange)


def test_a_worker_with_one_wrong_bit_is_found_by_its_canary_rows(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    cluster = LiveCluster(demo_model, tmp_path, workers=2, problems={0: "flipped 1"})
    try:
        report = cluster.wait_for(lambda report: report["state"] != "waiting" and in_force(report) == 1)
        bad = worker_of(report, "worker-0")
        assert bad["state"] == "failed"
        assert re.fullmatch(QUARANTINED, bad["reason"])
        reference.check(cluster.answer(prompt, 100))
        assert worker_of(cluster.status(), "worker-0")["calls"] == 0
        cluster.restart_worker(0)  # the same again, under a name that is taken until the former life is over
        assert cluster.workers[0].wait() == 2
        cluster.stop()
    finally:
        cluster.close()


def test_a_worker_that_begins_to_be_wrong_is_found_by_an_audit(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"coordinator_options": ["--audit", "1"], "problems": {0: f"flipped {EVERY}"}}
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster:
        steps = [Then(lambda report: worker_of(report, "worker-0")["state"] == "failed")]
        found = cluster.answer(prompt, 1900, script=steps)
        bad = worker_of(cluster.status(), "worker-0")
        assert re.fullmatch(QUARANTINED, bad["reason"])
        assert bad["calls"] < EVERY
        assert cluster.status()["audits"] > EVERY
    reference.check(found)
    assert "is quarantined: its bits differ" in (tmp_path / "coordinator.log").read_text()
