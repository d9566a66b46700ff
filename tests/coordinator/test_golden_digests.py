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
}
"""SHA-256 of the greedy ids (int32) and of the fp32 logits of every generated position, both little-endian."""


@pytest.fixture(params=native.available_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = native.isa()
    native.use_isa(request.param)
    yield request.param
    native.use_isa(before)


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
def test_every_way_of_computing_gives_the_digests(
    name: str,
    threads: int,
    chunk: int,
    isa: str,
    demo_model: Path,
    mini_model: Callable[[str], Path],
    small_model: Callable[[str], Path],
) -> None:
    small = small_model if name == "dense-first" else mini_model
    assert digests(demo_model if name == "demo" else small(name), threads, chunk) == GOLDEN[name]
