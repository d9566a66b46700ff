"""Vocabularies as large as those of real models, on models that are narrow otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import twin_kernels as twin
from command_line import run
from local_engine import greedy, local_engine, read
from moe_models import write_model

import native
from coordinator.choosing import choose
from coordinator.sampling import Sampling
from coordinator.tokenizer import Tokenizer
from protocol.model import Model

pytestmark = [pytest.mark.timeout(120)]

SIZES = [151_936, 262_144]
NARROW: dict[str, Any] = {
    "layers": 1,
    "embd": 32,
    "heads": 2,
    "head_dim": 32,
    "experts": 4,
    "experts_used": 2,
    "ff_exp": 32,
    "ctx": 128,
    "merged": True,
}
TEXT = "the horse <|im_end|>"


@pytest.fixture(scope="module", params=SIZES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large-vocabulary") / "model.gguf"
    return write_model(path, vocab=request.param, **NARROW)


def test_text_becomes_ids_and_text_again(model: Path) -> None:
    with Model.open(model) as opened:
        tokenizer = Tokenizer.of(opened.files.metadata)
    ids = tokenizer.encode(TEXT)
    assert ids[-1] == tokenizer.size - 1
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == TEXT


def test_every_row_of_the_head_is_computed(model: Path) -> None:
    x = np.random.default_rng(3).standard_normal((2, 32)).astype(np.float32)
    with Model.open(model) as opened:
        head, size = opened.files.tensor("output.weight"), opened.geometry.vocabulary
        out = np.empty((2, size), np.float32)
        native.matmul(native.Pool(2), native.Weights(head.data, int(head.type), 1, size, 32), 0, native.Rows(x), out)
        expected = twin.matmul(head.data, int(head.type), 32, x)
    np.testing.assert_array_equal(out.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(temperature=1.0, top_k=40), Sampling(temperature=1.0, top_p=0.9), Sampling(temperature=1.0)],
)
def test_the_last_token_can_be_chosen(model: Path, sampling: Sampling) -> None:
    with local_engine(model) as engine:
        logits = read(engine, [0, 1, 2])[-1]
    logits[-1] = 100.0
    assert choose(logits, [0, 1, 2], sampling, 3) == len(logits) - 1


@pytest.mark.cluster
def test_the_command_line_gives_the_answer_of_one_process(model: Path) -> None:
    asked = ["--json", "--max-tokens", "20", "--ignore-eos", "--workers", "2", TEXT]
    done = run("generate", "--model", model, *asked, timeout=100)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    with local_engine(model, kv="f16") as engine:
        assert greedy(engine, report["prompt_ids"], 20) == report["ids"]
