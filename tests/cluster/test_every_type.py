"""Every weight type that can be computed: the bits of one process and one file, split, with 0 to 4 workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_models
from clusters import PATIENT, live_cluster
from moe_models import write_model
from reference_answer import reference_for
from split_models import split_model

from protocol.quant_types import RUNNABLE, TensorType

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

TOKENS, MOST_WORKERS = 40, 4
_SMALL = {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 64, "vocab": 300, "experts": 8, "experts_used": 3}


def check(model: Path, layers: int, experts_used: int, prompt: list[int], log_dir: Path) -> None:
    """One answer over the split model without workers, then one more after each worker that joins."""
    split, answers = split_model(model, log_dir / "split", 5)[0], []
    with live_cluster(split, log_dir, workers=0, coordinator_options=PATIENT) as cluster:
        answers.append(cluster.answer(prompt, TOKENS))
        for _ in range(MOST_WORKERS):
            cluster.add_worker()
            answers.append(cluster.answer(prompt, TOKENS))
    entries = (len(prompt) + TOKENS - 1) * layers * experts_used
    assert [answer.report["local_entries"] for answer in answers] == [entries] + [0] * MOST_WORKERS
    for workers, answer in enumerate(answers):
        assert [worker["calls"] > 0 for worker in answer.report["workers"]] == [True] * workers
    assert len({answer.sha256_logits for answer in answers}) == 1
    with reference_for(model) as reference:
        reference.check(answers[0])


@pytest.mark.parametrize("kind", sorted(RUNNABLE), ids=lambda kind: kind.name)
def test_0_to_4_workers_give_one_hash(kind: TensorType, prompt: list[int], tmp_path: Path) -> None:
    """Embedding, attention, experts and head are of the type; rows end in short blocks where the type allows it."""
    embd, ff_exp = (256, 256) if kind.block_columns == 256 else (96, 160)
    model = write_model(
        tmp_path / "model.gguf", exp_type=kind.name, dense_type=kind.name, embd=embd, ff_exp=ff_exp, **_SMALL
    )
    check(model, _SMALL["layers"], _SMALL["experts_used"], prompt, tmp_path)


@pytest.mark.parametrize("name", ["short", "mixed"])
def test_0_to_4_workers_give_one_hash_for_types_side_by_side(name: str, prompt: list[int], tmp_path: Path) -> None:
    settings = {**small_models.MODELS[name], "ctx": 2048}
    model = write_model(tmp_path / "model.gguf", **settings)
    check(model, settings["layers"], settings["experts_used"], prompt, tmp_path)
