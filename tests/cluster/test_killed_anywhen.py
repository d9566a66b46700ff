"""Workers that end, freeze or are cut off at every moment of their lives and of an answer's: the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from clusters import (
    HEDGING,
    PATIENT,
    LiveCluster,
    RealProcess,
    Status,
    Then,
    in_force,
    is_away,
    live_cluster,
    worker_of,
)
from free_ports import four_ports
from reference_answer import Reference, reference_for
from relays import bad_link

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

HASTY = [*HEDGING, "--call-floor-ms", "300", "--beat-s", "0.2"]
TOKENS = 1900
LONG = [(7 * at) % 3000 + 100 for at in range(1200)]


@pytest.fixture
def cluster(demo_model: Path, tmp_path: Path) -> Iterator[LiveCluster]:
    """Two workers; prompts are read in many steps."""
    options = [*HASTY, "--chunk", "16"]
    with live_cluster(demo_model, tmp_path, workers=2, coordinator_options=options) as cluster:
        yield cluster


@pytest.mark.parametrize("hurt", [RealProcess.kill, RealProcess.freeze], ids=["killed", "frozen"])
def test_while_a_prompt_is_read(hurt: Callable[[RealProcess], None], cluster: LiveCluster, demo_model: Path) -> None:
    def reading(report: Status) -> bool:
        return any(0 < done < total for done, total in report["reading"])

    def away(report: Status) -> bool:
        return is_away(report, "worker-0")

    answer = cluster.answer(LONG, 600, script=[Then(reading, lambda: hurt(cluster.workers[0])), Then(away)])
    with reference_for(demo_model, LONG, 700) as reference:
        reference.check(answer)
    if hurt is RealProcess.freeze:
        cluster.workers[0].thaw()
        cluster.ready()


def test_between_a_call_and_its_answer(
    demo_model: Path, tmp_path: Path, prompt: list[int], reference: Reference
) -> None:
    """Each life of the worker ends so, in mid-step, after some hundred answers."""
    settings = {"coordinator_options": HASTY, "problems": {0: "dies 250"}}
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster:

        def ended(report: Status) -> bool:
            return cluster.workers[0].exit_code() is not None and is_away(report, "worker-0")

        def back(report: Status) -> bool:
            return in_force(report) == 2

        script = [Then(ended, lambda: cluster.restart_worker(0)), Then(back), Then(ended)]
        answer = cluster.answer(prompt, TOKENS, script=script)
    reference.check(answer)
    assert answer.report["replans"] + answer.report["hedges"] >= 2


def test_while_a_newcomer_loads(demo_model: Path, tmp_path: Path, prompt: list[int], reference: Reference) -> None:
    """It stops for ever in mid-load, and is killed there: those in force never notice."""
    settings = {
        "coordinator_options": PATIENT,  # so that whatever else is computed or asked for is the newcomer's doing
        "worker_module": "half_loaded_worker",
        "own_options": {0: ["--source", "mapped"], 1: ["--source", "copies"]},
    }
    with live_cluster(demo_model, tmp_path, workers=1, **settings) as cluster:

        def loading(report: Status) -> bool:
            return any(worker["name"] == "worker-1" and worker["state"] != "ready" for worker in report["workers"])

        def away(report: Status) -> bool:
            return is_away(report, "worker-1")

        newcomer: list[RealProcess] = []
        script = [
            Then(20, lambda: newcomer.append(cluster.start_worker(1))),
            Then(loading, lambda: newcomer[0].kill()),
            Then(away),
        ]
        answer = cluster.answer(prompt, TOKENS, script=script)
        reference.check(answer)
        assert answer.report["local_entries"] == answer.report["hedges"] == 0
        assert cluster.ready()["placement"] == worker_of(cluster.status(), "worker-0")["placement"]


@pytest.mark.parametrize("how", ["killed", "frozen", "cut off"])
def test_all_workers_at_once(
    how: str, demo_model: Path, tmp_path: Path, prompt: list[int], reference: Reference
) -> None:
    """The coordinator goes on alone, and with them when they are back."""
    with ExitStack() as stack:
        link = stack.enter_context(bad_link(four_ports(), four_ports()))
        settings = {"coordinator_options": HASTY, "listen": link.target, "links": {0: link, 1: link}}
        cluster = stack.enter_context(live_cluster(demo_model, tmp_path, workers=2, **settings))

        def hurt() -> None:
            if how == "cut off":
                link.say("hold both")
            for worker in cluster.workers if how != "cut off" else ():
                worker.kill() if how == "killed" else worker.freeze()

        def heal() -> None:
            link.say("pass")
            for number in (0, 1) if how == "killed" else ():
                cluster.restart_worker(number)
            for worker in cluster.workers if how == "frozen" else ():
                worker.thaw()

        def alone(report: Status) -> bool:
            return all(is_away(report, f"worker-{number}") for number in (0, 1))

        script = [Then(20, hurt), Then(alone, heal), Then(lambda report: in_force(report) == 2)]
        answer = cluster.answer(prompt, TOKENS, script=script)
        reference.check(answer)
        assert answer.report["local_entries"] > 0
