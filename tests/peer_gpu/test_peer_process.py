"""A real peer process on the emulated device, and a scripted coordinator over real sockets."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from message_examples import run_experts, stage_exchange
from open_bank import activations, open_bank
from worker_process import EXPERTS, LAYERS, WIDTH, ScriptedCoordinator, Start, holders_of

import native
from peer_gpu.slots import GIB
from protocol.holder.answer import answer
from protocol.messages import (
    MAX_ENTRY_NS,
    NO_RANK,
    Assign,
    AssignFailed,
    AssignProgress,
    AssignReady,
    Beat,
    ExchangeFailed,
    RunExperts,
    Sums,
    WorkFailed,
)
from protocol.model import Model

pytestmark = [pytest.mark.timeout(90), pytest.mark.cluster]


@pytest.fixture
def start(coordinator: ScriptedCoordinator, holder_model: Path, tmp_path: Path) -> Iterator[Start]:
    with holders_of(coordinator, holder_model, tmp_path, "emulated_peer") as start:
        yield start


def room_for(model: Path, experts: int) -> tuple[int, str]:
    """Bytes of so many experts, and what --vram-gib is then."""
    with Model.open(model) as opened:
        (_, layer), *_ = opened.layout.with_experts()
        size = layer.slot_bytes * experts
    return size, repr(size / GIB)


def work(placement: int, layer: int = 1) -> RunExperts:
    codes, scales = native.Rows(activations(3, WIDTH)).quantise()
    return run_experts(3, (1, 3), WIDTH, codes=codes, scales=scales, placement=placement, layer=layer)


def held(*layers: int) -> np.ndarray:
    """All experts of these layers."""
    made = np.zeros((LAYERS, EXPERTS), np.uint8)
    made[list(layers)] = 1
    return made


def test_a_peer_says_what_it_has_room_for_and_keeps_to_it(
    coordinator: ScriptedCoordinator, start: Start, holder_model: Path
) -> None:
    room, gib = room_for(holder_model, 2 * EXPERTS)
    peer = start("--device", "cuda:0", "--vram-gib", gib)
    hello = coordinator.welcome(peer)
    assert (hello.role, hello.room, hello.isa, hello.threads) == ("peer", room, "an emulated device", 1)
    assert 0 < hello.entry_ns <= MAX_ENTRY_NS

    coordinator.say(Assign(placement=1, in_force=0, held=held(0, 1), rank=NO_RANK))
    assert coordinator.hear(coordinator.control, AssignProgress, peer).done == 1
    assert coordinator.hear(coordinator.control, AssignReady, peer).experts == 2 * EXPERTS
    coordinator.ask(work(1))
    reply = coordinator.hear(coordinator.work, Sums, peer)
    with open_bank(holder_model) as bank:
        expected = answer(work(1), bank, np.ones((LAYERS, EXPERTS), np.uint8))
    assert isinstance(expected, Sums)
    np.testing.assert_array_equal(reply.sum48, expected.sum48)
    while (beat := coordinator.hear(coordinator.control, Beat, peer)).calls == 0:
        pass
    assert (beat.step, beat.layer, beat.calls, beat.entries) == (3, 1, 1, 6)

    coordinator.say(Assign(placement=2, in_force=1, held=held(0, 1, 2), rank=NO_RANK))
    failed = coordinator.hear(coordinator.control, AssignFailed, peer)
    assert failed.reason == (
        f"{3 * room // 2} bytes of experts are {room // 2} more than the {room} that there is room for on cuda:0"
    )
    coordinator.ask(work(1))
    coordinator.hear(coordinator.work, Sums, peer)  # what is in force can still be run

    coordinator.say(Assign(placement=3, in_force=1, held=held(1, 2), rank=NO_RANK))  # no room for layer 0 beside it
    coordinator.hear(coordinator.control, AssignReady, peer)
    for message in (work(1), work(3, layer=2)):
        coordinator.ask(message)
        coordinator.hear(coordinator.work, Sums, peer)
    coordinator.ask(work(1, layer=0))
    assert coordinator.hear(coordinator.work, WorkFailed, peer).reason == "layer 0, expert 1: not held on cuda:0"
    peer.process.send_signal(signal.SIGTERM)
    assert peer.ends()[0] == 0


def test_a_peer_refuses_exchanges_and_keeps_what_it_holds(
    coordinator: ScriptedCoordinator, start: Start, holder_model: Path
) -> None:
    peer = start("--device", "cuda:0", "--vram-gib", room_for(holder_model, EXPERTS)[1])
    coordinator.welcome(peer)
    some = held(1)
    some[1, 2] = 0
    coordinator.say(Assign(placement=1, in_force=0, held=some, rank=NO_RANK))
    coordinator.hear(coordinator.control, AssignReady, peer)
    coordinator.say(stage_exchange(leaves=1, comes=2))
    failed = coordinator.hear(coordinator.control, ExchangeFailed, peer)
    assert failed.reason == "layer 1, expert 2: experts in a GPU's memory are assigned, not exchanged"
    coordinator.ask(work(1))
    coordinator.hear(coordinator.work, Sums, peer)


CANNOT_START = [
    (["--device", "cuda:3"], "emulated_peer", "error: device cuda:3: there are 1 here, cuda:0 to cuda:0 are expected"),
    (["--vram-gib", "-1"], "emulated_peer", "peer_gpu: error: argument --vram-gib: -1 found, auto or a number from 0 "),
    (["--vram-gib", "1e308"], "emulated_peer", "peer_gpu: error: argument --vram-gib: 1e308 found, auto or a number "),
    (
        ["--vram-gib", "x"],
        "emulated_peer",
        "peer_gpu: error: argument --vram-gib: x found, auto or a number from 0 to 4096 expected",
    ),
    (["--device", "cpu"], "peer_gpu.main", "error: device 'cpu': a GPU is expected, such as cuda:0; workers are what "),
    (["--device", "gpu0"], "peer_gpu.main", "error: device 'gpu0': "),
    (["--model", "/nowhere/m.gguf"], "peer_gpu.main", "error: model file '/nowhere/m.gguf' does not exist"),
    (["--connect", "tcp://192.0.2.1:7600"], "peer_gpu.main", "error: endpoint 'tcp://192.0.2.1:7600': expected tcp://"),
]


@pytest.mark.parametrize(("options", "module", "said"), CANNOT_START, ids=lambda value: str(value)[:40])
def test_what_cannot_start_is_one_sentence(start: Start, options: list[str], module: str, said: str) -> None:
    code, last = start(*options, module=module).ends()
    assert code == 2
    assert last.startswith(said)


@pytest.mark.skipif(find_spec("cupy") is not None, reason="cupy is here")
def test_without_cupy_a_real_device_is_refused_in_a_sentence(start: Start) -> None:
    code, last = start(module="peer_gpu.main").ends()
    assert code == 2
    assert last.startswith("error: device cuda:0: it is used through cupy, which cannot be loaded (")
    assert last.endswith("the extras cuda12 and cuda13 install it")
