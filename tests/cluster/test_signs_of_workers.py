"""Status tells a frozen worker from one that is held up, and from a dead one."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import Status, Then, live_cluster, worker_of
from reference_answer import Reference

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SLOW_BEATS = ["--call-floor-ms", "300", "--beat-s", "1"]
"""Frozen after 2.5 s, lost after 6 s."""


def row(report: Status) -> Status:
    return worker_of(report, "worker-0")


def test_a_frozen_worker_is_called_so_before_it_is_given_up(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(demo_model, tmp_path, workers=2, coordinator_options=SLOW_BEATS) as cluster:

        def called_frozen(report: Status) -> bool:
            return (row(report)["state"], row(report)["sign"]) == ("suspect", "frozen")

        def well(report: Status) -> bool:
            return row(report)["state"] == "ready" and row(report)["sign"] in ("idle", "busy")

        frozen = cluster.workers[0]
        script = [Then(20, frozen.freeze), Then(called_frozen, frozen.thaw), Then(well)]
        reference.check(cluster.answer(prompt, 1900, script=script))


def test_a_dead_worker_is_lost_at_once(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    with live_cluster(demo_model, tmp_path, workers=2, coordinator_options=SLOW_BEATS) as cluster:
        script = [Then(20, cluster.workers[0].kill), Then(lambda report: row(report)["state"] == "lost")]
        answer = cluster.answer(prompt, 1900, script=script)
        reference.check(answer)
        assert row(answer.report)["reason"] == "its connection is closed or full"
        assert "sign" not in row(answer.report)
