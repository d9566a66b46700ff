"""Machines whose link is down for a while, as network namespaces: same bits, and their workers are used again."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from clusters import HEDGING, Status, Then, in_force, is_away, live_cluster, worker_of
from free_ports import four_ports
from key_folders import key_folder
from reference_answer import Reference
from ssh_clusters import far_machine, needs_namespaces

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), needs_namespaces]

TOKENS = 1900
BACK_S = 60.0
"""TCP tries again at ever longer intervals, and a worker that hears nothing says Hello anew after ten seconds."""


def test_a_machine_that_loses_its_link_costs_time_and_computes_again_when_it_is_back(
    demo_model: Path, prompt: list[int], reference: Reference, tmp_path: Path
) -> None:
    port, keys = four_ports(), key_folder(tmp_path / "keys", "machine-0", "machine-1")
    settings = {"coordinator_options": [*HEDGING, "--beat-s", "0.2"], "listen": f"tcp://0.0.0.0:{port}", "keys": keys}
    with ExitStack() as stack:
        machines = [stack.enter_context(far_machine()) for _ in range(2)]
        cluster = stack.enter_context(live_cluster(demo_model, tmp_path, workers=0, **settings))
        for number, machine in enumerate(machines):
            name, key = f"machine-{number}", str(keys / f"machine-{number}.key")
            options = ["--connect", f"tcp://{machine.near}:{port}", "--model", str(demo_model), "--name", name]
            options += ["--keys", key]
            cluster.workers.append(cluster.start(name, "expert_worker.main", options, within=machine.within))
        cluster.ready()
        lost = machines[1]

        def away(report: Status) -> bool:
            return is_away(report, "machine-1")

        script = [Then(20, lambda: lost.link("down")), Then(away)]
        answer = cluster.answer(prompt, TOKENS, script=script)
        reference.check(answer)
        assert worker_of(answer.report, "machine-0")["calls"] > 0
        lost.link("up")
        cluster.wait_for(lambda report: in_force(report) == 2, within_s=BACK_S)
        answer = cluster.answer(prompt, 100)
        reference.check(answer)
        row = worker_of(answer.report, "machine-1")
        assert row["calls"] > 0
        assert row["pid"] == cluster.workers[1].pid, "it is the same process"
