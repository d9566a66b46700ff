"""A layer that fails ends its step: nobody is asked for a later one, and the next step is sound."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_engine import local_engine, read
from moe_models import write_model
from passing_experts import PassingExperts
from scripted_answers import good_answer
from scripted_mesh import ScriptedMesh
from scripted_parts import EXPERTS, WIDTH

from coordinator.engine import ExpertRunner
from protocol.errors import ExpertError
from protocol.messages import Message, RunExperts, WorkFailed

LAYERS, FAILS = 48, 5
TEXT = [1, 2, 3, 4, 5, 6]


class Halves(PassingExperts):
    """Has windows cut from so many rows on, or none."""

    def __init__(self, experts: ExpertRunner, least: int | None) -> None:
        super().__init__(experts)
        self._least = least

    @property
    def halves_from(self) -> int | None:
        return self._least


def fails_late(work: RunExperts) -> list[Message]:
    """An answer until the layer that fails."""
    if work.layer < FAILS:
        return [good_answer(work)]
    names = {"session": work.session, "step": work.step, "layer": work.layer, "attempt": work.attempt}
    return [WorkFailed(**names, expert=-1, reason="no")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the shape that scripted workers know, with many layers."""
    shape = {"embd": WIDTH, "ff_exp": 32, "experts": EXPERTS, "experts_used": 3, "layers": LAYERS}
    heads = {"heads": 2, "kv_heads": 1, "head_dim": 16, "vocab": 300, "ctx": 256}
    types = {"exp_type": "Q8_0", "dense_type": "Q8_0"}
    return write_model(tmp_path_factory.mktemp("model") / "deep.gguf", **shape, **heads, **types)


@pytest.mark.parametrize("halves_from", [None, 2], ids=["whole", "in halves"])
def test_no_worker_is_asked_for_a_later_layer(model: Path, halves_from: int | None) -> None:
    mesh = ScriptedMesh(3, layers=LAYERS)
    sound = [worker.behaviour for worker in mesh.workers]
    with local_engine(model, wrap=lambda _: Halves(mesh.experts, halves_from)) as engine:
        expected = read(engine, TEXT)
        assert {work.layer for worker in mesh.workers for work in worker.work} == set(range(LAYERS))
        mesh.bank.broken = True
        for worker in mesh.workers:
            worker.behaviour = fails_late
            worker.work.clear()
        with pytest.raises(ExpertError, match="the bank is broken"):
            read(engine, TEXT)
        assert {work.layer for worker in mesh.workers for work in worker.work} == set(range(FAILS + 1))
        mesh.bank.broken = False
        for worker, behaviour in zip(mesh.workers, sound, strict=True):
            worker.behaviour = behaviour
        assert read(engine, TEXT).tobytes() == expected.tobytes()
