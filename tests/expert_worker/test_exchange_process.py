"""A real worker process that exchanges experts, whatever its source, and a scripted coordinator over real sockets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from message_examples import run_experts, stage_exchange
from open_bank import activations, open_bank, rows_of
from worker_process import EXPERTS, LAYERS, WIDTH, ScriptedCoordinator, Start, WorkerProcess

import native
from protocol.holder.answer import answer
from protocol.messages import (
    NO_RANK,
    Assign,
    AssignReady,
    Beat,
    CommitExchange,
    ExchangeCommitted,
    ExchangeFailed,
    ExchangeStaged,
    RunExperts,
    SayHello,
    Sums,
    WorkFailed,
)

pytestmark = [pytest.mark.timeout(90), pytest.mark.cluster]


def work(*experts: int, **changes: object) -> RunExperts:
    codes, scales = native.Rows(activations(3, WIDTH)).quantise()
    return run_experts(3, experts, WIDTH, codes=codes, scales=scales, **changes)


def assign(coordinator: ScriptedCoordinator, worker: WorkerProcess) -> None:
    """Experts 0 to 2 of both layers, as placement 1."""
    held = np.zeros((LAYERS, EXPERTS), np.uint8)
    held[:, :3] = 1
    coordinator.say(Assign(placement=1, in_force=0, held=held, rank=NO_RANK))
    assert coordinator.hear(coordinator.control, AssignReady, worker).experts == LAYERS * 3


def check_runs(coordinator: ScriptedCoordinator, worker: WorkerProcess, model: Path, *experts: int) -> None:
    """These give the bits of the file."""
    coordinator.ask(work(*experts))
    reply = coordinator.hear(coordinator.work, Sums, worker)
    with open_bank(model) as bank:
        expected = answer(work(*experts), bank, np.ones((LAYERS, EXPERTS), np.uint8))
    assert isinstance(expected, Sums)
    np.testing.assert_array_equal(rows_of(reply, 3), rows_of(expected, 3))


def refused(coordinator: ScriptedCoordinator, worker: WorkerProcess, expert: int) -> str:
    """Why the worker does not run this one."""
    coordinator.ask(work(expert))
    return coordinator.hear(coordinator.work, WorkFailed, worker).reason


@pytest.mark.parametrize("options", [("--source", "mapped"), ("--source", "arena"), ("--source", "direct")])
def test_both_run_while_it_is_staged_and_the_one_that_comes_after(
    coordinator: ScriptedCoordinator, start_worker: Start, holder_model: Path, options: tuple[str, ...]
) -> None:
    worker = start_worker(*options)
    coordinator.welcome(worker)
    assign(coordinator, worker)
    assert "expert 4: not held under placement 1" in refused(coordinator, worker, 4)
    coordinator.say(stage_exchange(leaves=2, comes=4))
    assert coordinator.hear(coordinator.control, ExchangeStaged, worker).residency == 2
    check_runs(coordinator, worker, holder_model, 0, 2, 4)
    coordinator.say(CommitExchange(exchange=7))
    assert coordinator.hear(coordinator.control, ExchangeCommitted, worker).residency == 3
    check_runs(coordinator, worker, holder_model, 0, 1, 4)
    assert "expert 2: not held under placement 1" in refused(coordinator, worker, 2)
    beat = coordinator.hear(coordinator.control, Beat, worker)
    assert beat.residency == 3
    if "arena" in options:
        assert beat.tiers["copied_experts"] == LAYERS * 3


def test_what_a_dead_coordinator_staged_is_dropped(
    coordinator: ScriptedCoordinator, start_worker: Start, holder_model: Path
) -> None:
    worker = start_worker()
    coordinator.welcome(worker)
    assign(coordinator, worker)
    coordinator.say(stage_exchange(leaves=2, comes=4, within_s=60.0))
    coordinator.hear(coordinator.control, ExchangeStaged, worker)
    coordinator.say(SayHello())  # as its successor does, which knows nobody
    coordinator.welcome(worker, session="s2", token="t2")
    assert coordinator.hear(coordinator.control, Beat, worker).residency == 0
    assign(coordinator, worker)
    coordinator.ask(work(4, session="s2"))
    assert "expert 4: not held" in coordinator.hear(coordinator.work, WorkFailed, worker).reason
    coordinator.say(stage_exchange(leaves=2, comes=4))
    coordinator.hear(coordinator.control, ExchangeStaged, worker)


def test_what_is_not_committed_in_time_is_dropped(
    coordinator: ScriptedCoordinator, start_worker: Start, holder_model: Path
) -> None:
    worker = start_worker()
    coordinator.welcome(worker)
    assign(coordinator, worker)
    coordinator.say(stage_exchange(leaves=2, comes=4, within_s=0.1))
    failed = coordinator.hear(coordinator.control, ExchangeFailed, worker)
    assert failed.reason == "dropped: not committed within 0.1 s"
    assert "expert 4: not held under placement 1" in refused(coordinator, worker, 4)
    check_runs(coordinator, worker, holder_model, 0, 2)
