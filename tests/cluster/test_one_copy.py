"""Workers of one machine that map the same file, or share an arena, have one copy of its experts between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command_line import wait_until
from footprint import memory_of
from message_examples import run_experts
from moe_models import write_model
from open_bank import activations
from worker_process import WITHIN_S, ScriptedCoordinator, WorkerProcess, holders_of

import native
from protocol.messages import NO_RANK, Assign, AssignReady, Stop, Sums
from protocol.model import Model
from protocol.stock import Stock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

WORKERS = 3
LAYERS, EXPERTS, WIDTH = 4, 32, 1024
MIB = 1 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """226 MB of experts."""
    shape = {"layers": LAYERS, "experts": EXPERTS, "experts_used": 2, "embd": WIDTH, "ff_exp": 1024, "vocab": 300}
    path = tmp_path_factory.mktemp("model") / "wide.gguf"
    yield write_model(path, exp_type="Q4_K", dense_type="Q8_0", fill="pool", **shape)
    path.unlink()


def is_waiting(worker: WorkerProcess) -> bool:
    """Whether it has all it needs before it is let in."""
    return "dialling" in worker.log()


def touch_everything(coordinator: ScriptedCoordinator, worker: WorkerProcess) -> None:
    """Have it compute every expert of every layer, of one row no more than a sum may have."""
    codes, scales = native.Rows(activations(1, WIDTH)).quantise()
    for layer in range(LAYERS):
        for half in (range(EXPERTS // 2), range(EXPERTS // 2, EXPERTS)):
            coordinator.ask(run_experts(1, tuple(half), WIDTH, codes=codes, scales=scales, layer=layer))
            coordinator.hear(coordinator.work, Sums, worker)


@pytest.mark.parametrize(("source", "copies"), [("mapped", 1), ("shared", 1), ("copies", WORKERS)])
def test_the_summed_pss_of_three_workers(source: str, copies: int, model: Path, tmp_path: Path) -> None:
    """Each of them has touched all experts. Copies of each worker's own show that the measure tells them apart."""
    with Model.open(model) as opened:
        expert_bytes = Stock.of(opened.layout).bytes
    assert expert_bytes > 200 * MIB
    with ExitStack() as stack:
        crew = []
        for _ in range(WORKERS):
            coordinator = stack.enter_context(ScriptedCoordinator.listening())
            start = stack.enter_context(holders_of(coordinator, model, tmp_path, "expert_worker.main"))
            crew.append((coordinator, start("--source", source)))
        for _, worker in crew:  # before anybody has joined: whoever has begins to load
            assert wait_until(partial(is_waiting, worker), WITHIN_S), worker.log()
        before = [memory_of(worker.process.pid).proportional for _, worker in crew]
        hellos = [coordinator.welcome(worker) for coordinator, worker in crew]
        for (coordinator, _), hello in zip(crew, hellos, strict=True):
            all_of_them = np.ones((hello.geometry["layers"], hello.geometry["experts"]), np.uint8)
            coordinator.say(Assign(placement=1, in_force=0, held=all_of_them, rank=NO_RANK))
        for coordinator, worker in crew:  # only now: who opened a shared arena first loads it for all
            coordinator.hear(coordinator.control, AssignReady, worker)
        for coordinator, worker in crew:
            touch_everything(coordinator, worker)
        after = [memory_of(worker.process.pid) for _, worker in crew]
        for coordinator, worker in crew:
            coordinator.say(Stop())
            assert worker.ends()[0] == 0
    assert min(memory.resident for memory in after) >= expert_bytes
    grown = sum(memory.proportional for memory in after) - sum(before)
    assert copies * 0.95 * expert_bytes <= grown <= copies * 1.3 * expert_bytes, (before, after)
    assert len({hello.pages for hello in hellos}) == 1
