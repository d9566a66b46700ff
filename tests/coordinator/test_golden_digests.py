"""The same bits everywhere: digests written down once, which every machine and every way of computing must give.

A change of docs/arithmetic.md changes them, and nothing else may.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from local_engine import local_engine
from reference_answer import PROMPT

import native
from coordinator.engine import Chunk

TOKENS = 200
GOLDEN = {
    "demo": (
        "b40ffeebfc3210cdffd534ee38382a3ab16b87272671401806bd96a6b8a494aa",
        "1c730c0835e6eac62448a0b2b7e87831bd64a849aa6928d1015874f87296a425",
    ),
    "bf16": (
        "ccbec905d1b48b4f2e38759a895b9b04ec7dc114464c8c168ce818da40cfae38",
        "fda705d9eb5ad57aa6250a25249e58db296516897e6d757cb1863b7769695bec",
    ),
    "dense-first": (
        "8a2f2fc58893f42a626d23698b804153412bc44fa0ae5f8e022ae63f6b80f47f",
        "6fa73839d18fed2bd0b6ffefafd3e5bb7778712ba1db3c2e109f9515bd313091",
    ),
    "q8_0": (
        "cee11fac30d451e4064da1fd306ba5678e5da94b21197cbb48a5111cf3c2e8f8",
        "9d45e7800b9aa259f2d26e1cf27696367062b1e15d62b1a492e68307c3122637",
    ),
    "q4_0": (
        "7a3f1986a9daaf8f9e9ab6b40f8efc9e43f35ff68c4521f11029766f031aae0e",
        "dd5f8b8fc3fd1bd66f66ae76a7c07191a2fa26d1f1dc7ad45491faaa5fc57626",
    ),
    "q4_1": (
        "54ec8c770fe96f16078ac6ad7232af8e229e38371ec7fb04f33a2a929c2827f9",
        "849c3a85a894aa1af08ab2efb76a8e6818217d89f8876fd68bc821994a923c85",
    ),
    "q5_0": (
        "0bb0aac077a39fdc91787a70fdbc296ea306280b9a7de71b3f081ba8c01522e2",
        "3562820d1b28dd4832ef174b61568992a66767d48ecd4209add2a32583e9e370",
    ),
    "q5_1": (
        "616d90584e29f55216492cabee7a2cb88acd77b781c006630008f7fa8a228236",
        "d72434c8d49cfaa3be4887bcdee6f10569c5568cab65c532cab289d524bdad6a",
    ),
    "q5_k": (
        "7f340ff6b371c20a626f5c22f57ed35925a604a747acb07f29eaed93fd5ff3f0",
        "08191a463dc3919afa7f55848bef14a6582ca31d579562924e4cdc2b1a11bba5",
    ),
    "short": (
        "0e780572cd5c8eae5f9d6163dee5e396b0c2b80121671b4c0a9a56c9a986fd25",
        "d83a844a2235999454e42266a2bf43ce449e252d1c60450dfde2db7cbd4a8160",
    ),
    "mixed": (
        "790eea307b8cb29458bacccfdc5d81ea2beba710ee99b6465a8f4b8251e81a57",
        "5e25faffe8330a5c6b4698f13907b234071325f136f126592f1f06849357df40",
    ),
}
"""SHA-256 of the greedy ids (int32) and of the fp32 logits of every generated position, both little-endian."""


@pytest.fixture(params=native.available_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = native.isa()
    native.use_isa(request.param)
    yield request.param
    native.use_isa(before)


@pytest.fixture
def model(name: str, demo_model: Path, mini_model: Callable[[str], Path], small_model: Callable[[str], Path]) -> Path:
    """The demo model, a small one (rows that end in short blocks, mixed types, a dense layer), or a mini model."""
    if name == "demo":
        return demo_model
    return small_model(name) if name in ("short", "mixed", "dense-first") else mini_model(name)


def digests(model: Path, threads: int, chunk: int) -> tuple[str, str]:
    ids, logits_digest = [], hashlib.sha256()
    with local_engine(model, kv="f16", threads=threads) as engine:
        sequence = engine.new_sequence(PROMPT, TOKENS)
        parts = [PROMPT[at : at + chunk] for at in range(0, len(PROMPT), chunk)]
        for _ in range(TOKENS):
            for part in parts:
                [logits] = engine.step([Chunk(sequence=sequence, ids=part)])
            logits_digest.update(logits[0].astype("<f4").tobytes())
            ids.append(int(logits[0].argmax()))
            parts = [ids[-1:]]
    return hashlib.sha256(np.array(ids, "<i4").tobytes()).hexdigest(), logits_digest.hexdigest()


@pytest.mark.parametrize(("threads", "chunk"), [(1, 512), (2, 7)])
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_every_way_of_computing_gives_the_digests(name: str, threads: int, chunk: int, isa: str, model: Path) -> None:
    assert digests(model, threads, chunk) == GOLDEN[name]
