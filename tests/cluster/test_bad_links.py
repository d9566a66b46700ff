"""Links that hold everything, lose pieces, break, or are open at one end only: same bits, and workers come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import HEDGING, LiveCluster, Status, Then, in_force, is_away, is_out, live_cluster, worker_of
from free_ports import four_ports
from reference_answer import Reference
from relays import BadLink, bad_link

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TOKENS = 1900
FAR = "worker-1"


@pytest.fixture
def link() -> Iterator[BadLink]:
    with bad_link(four_ports(), four_ports()) as link:
        yield link


@pytest.fixture
def beat_s() -> float:
    """Six beats of silence, and somebody is given up: these tests wait for that."""
    return 0.2


nobody_is_given_up = pytest.mark.parametrize("beat_s", [2.0])
"""However long the machine is busy with something else meanwhile."""


@pytest.fixture
def cluster(demo_model: Path, tmp_path: Path, link: BadLink, beat_s: float) -> Iterator[LiveCluster]:
    """A worker here, and one behind the link."""
    options = [*HEDGING, "--beat-s", str(beat_s)]
    settings = {"coordinator_options": options, "listen": link.target, "links": {1: link}}
    with live_cluster(demo_model, tmp_path, workers=2, **settings) as cluster:
        yield cluster
        link.say("pass")  # so that everybody hears of the end


def both(report: Status) -> bool:
    return in_force(report) == 2


def far_computes(cluster: LiveCluster, prompt: list[int], reference: Reference) -> None:
    """An answer to which the worker behind the link contributes."""
    cluster.wait_for(both)
    answer = cluster.answer(prompt, 100)
    reference.check(answer)
    assert worker_of(answer.report, FAR)["calls"] > 0


@pytest.mark.parametrize("way", ["up", "down", "both"])
def test_a_link_that_swallows_everything_costs_a_hedge_and_its_worker_comes_back(
    way: str, cluster: LiveCluster, link: BadLink, prompt: list[int], reference: Reference
) -> None:
    """Where only its own words get through it is no more than suspect, for it beats: the link may heal at any time."""

    def out(report: Status) -> bool:
        return is_out(report, FAR) if way == "down" else is_away(report, FAR)

    script = [Then(20, lambda: link.say(f"hold {way}")), Then(out, lambda: link.say("pass")), Then(both)]
    answer = cluster.answer(prompt, TOKENS, script=script)
    reference.check(answer)
    assert answer.report["hedges"] >= 1
    far_computes(cluster, prompt, reference)


@nobody_is_given_up
def test_a_link_that_is_dead_for_a_moment_costs_nobody_the_membership(
    cluster: LiveCluster, link: BadLink, prompt: list[int], reference: Reference
) -> None:
    def hedged(report: Status) -> bool:
        return bool(report["hedges"])

    def late(report: Status) -> bool:
        return bool(report["late_replies"])

    script = [Then(20, lambda: link.say("hold both")), Then(hedged, lambda: link.say("pass")), Then(late)]
    answer = cluster.answer(prompt, TOKENS, script=script)
    reference.check(answer)
    assert answer.report["placement"] == cluster.status()["placement"] == 1
    far_computes(cluster, prompt, reference)


@nobody_is_given_up
def test_a_link_that_loses_something_again_and_again_costs_hedges_and_nobody_the_membership(
    cluster: LiveCluster, link: BadLink, prompt: list[int], reference: Reference
) -> None:
    """What is lost comes 0.2 s later, so calls are hedged, whose answers come late."""

    def hedged_again(report: Status) -> bool:
        return report["hedges"] >= 3 and report["late_replies"] >= 3

    script = [Then(20, lambda: link.say("loss 0.01 7")), Then(hedged_again, lambda: link.say("loss 0 0"))]
    answer = cluster.answer(prompt, TOKENS, script=script)
    reference.check(answer)
    assert answer.report["placement"] == cluster.status()["placement"] == 1
    far_computes(cluster, prompt, reference)


def test_who_is_cut_off_says_hello_again(
    cluster: LiveCluster, link: BadLink, prompt: list[int], reference: Reference
) -> None:
    before = cluster.status()["placement"]

    def joined_anew(report: Status) -> bool:
        return report["placement"] > before and both(report)

    answer = cluster.answer(prompt, TOKENS, script=[Then(20, lambda: link.say("cut")), Then(joined_anew)])
    reference.check(answer)
    far_computes(cluster, prompt, reference)


@pytest.mark.parametrize("end", ["near", "far"])
def test_a_connection_that_is_open_at_one_end_only_is_noticed_by_the_other_end(
    end: str, cluster: LiveCluster, link: BadLink, prompt: list[int], reference: Reference
) -> None:
    """The worker's if it is `far`: it misses what answers its beats, for ten seconds, and says Hello anew."""
    pid = cluster.workers[1].pid
    before = cluster.status()["placement"]
    script = [Then(20, lambda: link.say(f"forget {end}")), Then(lambda report: report["placement"] > before)]
    answer = cluster.answer(prompt, TOKENS, script=script)
    reference.check(answer)
    cluster.wait_for(both, within_s=60)
    assert worker_of(cluster.status(), FAR)["pid"] == pid
    far_computes(cluster, prompt, reference)


@nobody_is_given_up
def test_a_slow_link_is_no_failure(
    cluster: LiveCluster, link: BadLink, prompt: list[int], reference: Reference
) -> None:
    """Its calls take longer than others', but as long as they do: after a few that is known, and waited for."""
    reference.check(cluster.answer(prompt, 20))
    link.say("delay 20")
    link.say("mbit 20")
    reference.check(cluster.answer(prompt, 20))
    before = cluster.status()
    answer = cluster.answer(prompt, 40)
    reference.check(answer)
    after = cluster.status()
    assert both(after)
    assert worker_of(answer.report, FAR)["calls"] > 0
    calls = worker_of(after, FAR)["calls"] - worker_of(before, FAR)["calls"]
    assert after["hedges"] - before["hedges"] <= calls / 4
