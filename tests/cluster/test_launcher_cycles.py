"""Workers of `expertmesh up` come and go again and again by `scale`: what the launcher has of its own does not grow.

EXPERTMESH_CYCLES says how often.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from command_line import processes_of, wait_until
from footprint import Use, has_no_more, use_of
from running_up import ask, private_copy, up

from coordinator.launcher_desk import Scale, ask_launcher

pytestmark = [pytest.mark.cluster]

CYCLES = int(os.environ.get("EXPERTMESH_CYCLES", "10"))
WARM = 5
"""Cycles after which everything that is kept once has been made."""
GROWTH = 2 << 20
"""Bytes that all further cycles together may leave behind: an arena of malloc's, nothing of each worker."""
SCALED_S = 60.0


def workers_of(endpoint: str) -> int:
    """How many run."""
    return len(processes_of(endpoint, "expert_worker.main"))


@pytest.mark.timeout(120 + 10 * CYCLES)
def test_workers_come_and_go_and_the_launcher_keeps_nothing_of_them(tmp_path: Path) -> None:
    config, endpoint = private_copy("local-1.toml", tmp_path)
    uses: list[Use] = []
    with up(config, endpoint) as cluster:
        cluster.line("ready: 1 worker holds experts")
        before = ask(config)
        for _ in range(CYCLES):
            for count in (2, 1):
                list(ask_launcher(endpoint, Scale(counts={"box": count}), SCALED_S))
                assert wait_until(lambda: workers_of(endpoint) == count, 10.0)  # noqa: B023
            uses.append(use_of(cluster.process.pid))
        warm, last = uses[min(WARM, CYCLES) - 1], uses[-1]
        assert wait_until(lambda: has_no_more(cluster.process.pid, warm), 10.0), uses
        assert ask(config)["sha256_logits"] == before["sha256_logits"]
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.process.wait(30) == 0
    assert last.anonymous - warm.anonymous < GROWTH, uses
