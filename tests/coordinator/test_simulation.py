"""Simulated clusters: without chance their times can be computed by hand."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from observed import Observed
from scenarios import COSTS, SHAPE, scenario, workers

from coordinator.cluster import PROBE_S
from coordinator.cost import expected
from coordinator.deadlines import CallLimits
from coordinator.pace import Pace, Paces
from coordinator.sampled_rows import sampled_rows
from coordinator.simulation.decoding import decode, pauses, routing
from coordinator.simulation.mesh import SimulatedMesh
from coordinator.simulation.scenario import Varied
from protocol.messages import BeatSeen


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Workers die by the dozen."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_a_step_of_one_worker_is_the_sum_of_what_it_does() -> None:
    layer_s = COSTS.plan_s + COSTS.call_s + 2e-3 + 0.5e-3 + 2 * 0.6e-3 + COSTS.answer_s
    expected_s = COSTS.step_s + 3 * COSTS.layer_s + 2 * layer_s
    found = decode(scenario(workers(1)), 5)
    np.testing.assert_allclose(found.step_s, expected_s)
    assert found.tokens_per_s == pytest.approx(1 / expected_s)
    assert found.parts_s["kernels"] == pytest.approx(2 * 2 * 0.6e-3, abs=1e-5)  # which travel in microseconds
    assert sum(found.parts_s.values()) == pytest.approx(expected_s)
    assert (found.idle, found.local) == (0, 0.0)


def test_two_workers_compute_at_the_same_time() -> None:
    mesh = SimulatedMesh(scenario(workers(2)))
    mesh.gather()
    owner = mesh.members.assignment.active.owner
    apart = [np.flatnonzero(owner[layer] == serial)[0] for layer in (1, 2) for serial in (0, 1)]
    ids = np.array([[[0, 1]], [apart[:2]], [apart[2:]]], np.int32)
    first_s = COSTS.plan_s + COSTS.call_s + 2e-3 + 0.5e-3 + 0.6e-3
    layer_s = first_s + 2 * COSTS.answer_s  # the second has come while the first is taken in
    assert mesh.step(ids) == pytest.approx(COSTS.step_s + 3 * COSTS.layer_s + 2 * layer_s)


def test_workers_of_one_machine_share_its_cores_and_the_work() -> None:
    team = workers(2, here=True, pages="here")
    alone, crowded = (decode(scenario(team, cores=cores), 5) for cores in (2.0, 1.0))
    layer_s = 0.6e-3  # of two entries, one each: as of one team they always share
    np.testing.assert_allclose(crowded.step_s - alone.step_s, 2 * layer_s, atol=2 * COSTS.call_s)


def test_it_agrees_with_the_expected_cost_of_a_placement() -> None:
    shape = scenario(workers(3))
    mesh = SimulatedMesh(shape)
    mesh.gather()
    paces = Paces.of(
        dict.fromkeys(mesh.members.assignment.active.members, Pace(entry_s=0.6e-3, call_s=2.5e-3)),
        local=Pace(entry_s=COSTS.entry_s),
        send_s=COSTS.call_s,
    )
    rows = sampled_rows(SHAPE.counts, SHAPE.used, 200)
    layer_s = expected(mesh.members.assignment.active, SHAPE.stock, rows, paces).layer_s
    found = decode(shape, 200)
    layers_s = found.step_s.mean() - COSTS.step_s - 3 * COSTS.layer_s - 2 * (COSTS.plan_s + COSTS.answer_s)
    assert layers_s == pytest.approx(layer_s.sum(), rel=0.03)


def test_the_same_seed_gives_the_same_and_another_something_else() -> None:
    chance = workers(3, entry_s=Varied(mean=1e-3, between=0.3, within=0.3))
    one, again, other = (decode(scenario(chance, seed=seed), 20).step_s for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert abs(one - other).max() > 0


def test_a_narrow_line_of_the_coordinator_is_shared_by_all_answers() -> None:
    rows = 16
    wide = decode(scenario(workers(4), rows=rows), 3)
    narrow = decode(scenario(workers(4), rows=rows, port_bytes_per_s=1e6), 3)
    least_bytes = 2 * rows * SHAPE.width * 4  # back, of each layer
    assert narrow.step_s.mean() - wide.step_s.mean() > 0.9 * 2 * least_bytes / 2e6
    assert narrow.limit == "calls"


def test_a_large_window_goes_in_halves_that_overlap() -> None:
    far = workers(2, round_trip_s=Varied(mean=0.05))
    whole, halves = decode(scenario(far, rows=7), 4), decode(scenario(far, rows=8), 4)
    assert halves.step_s.mean() == pytest.approx(whole.step_s.mean(), rel=0.15)
    assert sum(halves.parts_s.values()) == pytest.approx(halves.step_s.mean())


def test_hundreds_of_workers_can_be_simulated_and_those_without_experts_are_told() -> None:
    found = decode(scenario(workers(256)), 2)
    assert found.workers == 256
    assert 256 - 2 * 8 <= found.idle <= 256 - 8


@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_is_observed_of_one_worker_predicts_more_of_them(count: int) -> None:
    slow = workers(1, here=True, pages="here", entry_s=Varied(mean=4e-3))
    mesh = SimulatedMesh(scenario(slow))
    mesh.gather()
    token_s = [mesh.step(ids) for ids in itertools.islice(routing(mesh.scenario), 20)]
    tally = mesh.cluster.counters.workers["w-0"]
    seen = Observed(
        layers=mesh.experts.times.summary(),
        expert_layers=2,
        all_layers=3,
        token_s=float(np.median(token_s)),
        calls=1.0,
        entry_s=tally.busy_us * 1e-6 / tally.entries,
    )
    guessed = decode(scenario(seen.kind(count), costs=seen.costs()), 20)
    real = decode(scenario(replace(slow, count=count)), 20)
    assert guessed.tokens_per_s == pytest.approx(real.tokens_per_s, rel=0.02)


@pytest.mark.parametrize(
    ("limits", "least_s"),
    [(CallLimits(), CallLimits().hedge_floor_s), (CallLimits(hedge_floor_s=9.0), CallLimits().floor_s)],
    ids=["hedged", "not hedged"],
)
def test_who_says_nothing_is_waited_for_until_it_is_hedged_or_late(limits: CallLimits, least_s: float) -> None:
    some = scenario(workers(3), limits=limits)
    usual_s = decode(some, 5).percentile_s(50)
    for kind in ("frozen", "vanished"):
        silent = pauses(some, kind, 4)
        assert np.median(silent.pause_s) == pytest.approx(least_s, abs=usual_s)
        assert silent.pause_s.max() < least_s + 2 * usual_s


def test_a_killed_worker_is_noticed_by_its_connection_and_one_more_is_no_mishap() -> None:
    some = scenario(workers(3), limits=CallLimits(hedge_floor_s=9.0))
    usual_s = decode(some, 5).percentile_s(50)
    for exit_s, longest_s in ((0.02, PROBE_S), (0.0, 0.0)):  # in this time it is given a call, or in none
        killed = pauses(replace(some, kinds=(workers(3, exit_s=Varied(mean=exit_s)),)), "killed", 8)
        assert longest_s - usual_s < np.percentile(killed.pause_s, 75) < longest_s + 2 * usual_s
    assert pauses(some, "joins", 4).pause_s.max() < usual_s


@pytest.mark.parametrize("exit_s", [0.0, 0.03])
def test_until_its_machine_closes_its_connections_calls_to_a_dead_worker_are_sent(exit_s: float) -> None:
    mesh = SimulatedMesh(scenario(workers(2, exit_s=Varied(mean=exit_s))))
    mesh.gather()
    member = next(one for one in mesh.members if one.name == "w-0")
    mesh.workers[0].die(mesh.timeline.now)
    asked = 0
    while mesh.cluster.tell(member.control, BeatSeen(session="simulation")) and asked < 50:
        mesh.timeline.spend(1e-3, "dense")
        asked += 1
    assert 1e-3 * asked == pytest.approx(exit_s + 1e-3, abs=1.5e-3)  # and half a round trip


def test_what_a_line_that_was_cut_has_swallowed_passes_when_it_is_whole_again() -> None:
    mesh = SimulatedMesh(scenario(workers(2)))
    mesh.gather()
    mesh.workers[0].vanish(mesh.timeline.now, 2.0)  # less than it takes to be given up
    mesh.pass_time(4.0)
    assert [member.serial for member in mesh.members] == [0, 1]
    mesh.workers[0].vanish(mesh.timeline.now, 10.0)
    mesh.pass_time(9.0)
    assert [member.name for member in mesh.members] == ["w-1"]
    mesh.pass_time(3.0)
    assert {member.name for member in mesh.members} == {"w-0", "w-1"}
    assert len(mesh.members.assignment.active.members) == 2


@pytest.mark.parametrize("within", [0.0, 0.5])
def test_lines_differ_and_vary(within: float) -> None:
    slow = workers(4, bytes_per_s=Varied(mean=1e6, between=1.0, within=within))
    one, other = (decode(scenario(slow, seed=seed), 10).step_s for seed in (1, 2))
    same = decode(scenario(workers(4, bytes_per_s=Varied(mean=1e6))), 10).step_s
    assert abs(one.mean() - other.mean()) > 1e-4
    assert one.std() > same.std()


def test_what_is_slow_for_good_without_a_worker_ends_all_the_same() -> None:
    lame = scenario(workers(1), costs=replace(COSTS, entry_s=0.1))
    found = pauses(lame, "killed", 2)
    assert found.slow_s.min() > 60 * 2 * 0.2
    assert 2 * 2 * 0.1 - 0.01 < found.pause_s.max() < 2 * 2 * 0.1 + PROBE_S


def test_without_workers_that_live_the_coordinator_computes() -> None:
    some = scenario(workers(1))
    mesh = SimulatedMesh(some)
    mesh.gather()
    [worker] = mesh.workers
    worker.die(mesh.timeline.now)
    ids = np.zeros((3, 1, 2), np.int32) + np.array([0, 1], np.int32)
    mesh.step(ids)
    layer_s = COSTS.plan_s + 2 * COSTS.entry_s
    assert mesh.step(ids) == pytest.approx(COSTS.step_s + 3 * COSTS.layer_s + 2 * layer_s)
