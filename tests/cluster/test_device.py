"""A coordinator with a GPU, an emulated one here: the bits of one process, wherever the experts are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from clusters import PATIENT, Then, in_force, live_cluster
from reference_answer import reference_for

from peer_gpu.slots import GIB
from protocol.model import Model
from protocol.stock import Stock

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TOKENS = 8


def on_device(model: Path, share: float) -> dict[str, object]:
    """Settings of a cluster whose coordinator has so much of the experts on its device."""
    with Model.open(model) as opened:
        gib = share * (Stock.of(opened.layout).bytes + 1) / GIB
    options = [*PATIENT, "--device", "cuda:0", "--vram-gib", f"{gib:.12f}"]
    return {"coordinator_module": "emulated_coordinator", "coordinator_options": options}


@pytest.mark.parametrize(
    ("name", "share", "workers"),
    [("q8_0", 1.0, 0), ("q8_0", 0.5, 0), ("q8_0", 0.5, 2), ("q8_0", 0.0, 1), ("bf16", 0.5, 1)],
)
def test_where_experts_are_changes_no_bit(
    name: str, share: float, workers: int, mini_model: Callable[[str], Path], prompt: list[int], tmp_path: Path
) -> None:
    model = mini_model(name)  # activations travel quantised, or with the last one as fp32
    with live_cluster(model, tmp_path, workers=workers, **on_device(model, share)) as cluster:
        answer = cluster.answer(prompt, TOKENS)
    with reference_for(model) as reference:
        reference.check(answer)
    report = answer.report
    assert report["device"] == "cuda:0"
    assert (report["device_entries"] > 0) == (share > 0)
    assert (report["local_entries"] > 0) == (share < 1 and not workers)
    assert all(worker["entries"] > 0 for worker in report["workers"])
    with Model.open(model) as opened:
        geometry = opened.geometry
    entries = (len(prompt) + TOKENS - 1) * len(geometry.expert_layers) * geometry.experts_used
    of_workers = sum(worker["entries"] for worker in report["workers"])
    assert report["device_entries"] + report["local_entries"] + of_workers == entries


def test_a_worker_killed_beside_the_device_changes_no_bit(
    mini_model: Callable[[str], Path], prompt: list[int], tmp_path: Path
) -> None:
    model = mini_model("q8_0")
    with live_cluster(model, tmp_path, workers=2, **on_device(model, 0.5)) as cluster:
        script = [Then(2, cluster.workers[0].kill), Then(lambda report: in_force(report) == 1)]
        answer = cluster.answer(prompt, 3 * TOKENS, script=script)
    with reference_for(model) as reference:
        reference.check(answer)
    assert answer.report["device_entries"] > 0
