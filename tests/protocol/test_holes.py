"""Weights that were never written are named, and of a share those that must be there alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_bytes import Raw, RawTensor, gguf_bytes

from protocol.gguf import GgufFile
from protocol.holes import hole_problems, parts_there
from protocol.pack import (
    DIGEST_BYTES,
    DIGESTS_KEY,
    EXPERTS_KEY,
    FINGERPRINT_KEY,
    SHARE_KEY,
    SHARES_KEY,
    SOURCE_KEY,
    VERSION_KEY,
)
from protocol.shards import ModelFiles

NAME, SHAPE, EXPERT_BYTES = "blk.0.ffn_up_exps.weight", (4096, 32, 6), 4096 // 32 * 34 * 32
DENSE = "token_embd.weight"


def array(kind: int, content: bytes) -> Raw:
    return Raw(9, kind.to_bytes(4, "little") + len(content).to_bytes(8, "little") + content)


def sparse(path: Path, experts: list[int] | None, written: list[int], dense: bool = True) -> Path:
    """Experts of one layer, of which some are written, in a share with `experts` or (None) a model."""
    keys: dict[str, Any] = {"general.architecture": "any"}
    if experts is not None:
        keys |= {
            VERSION_KEY: 1,
            FINGERPRINT_KEY: "0" * 16,
            SOURCE_KEY: "m",
            DIGESTS_KEY: array(0, bytes(3 * DIGEST_BYTES)),
        }
        there = bytes(expert in experts for expert in range(SHAPE[2]))
        keys |= {SHARE_KEY: 1, SHARES_KEY: 2, EXPERTS_KEY: array(7, there)}
    kind = 8 if experts is None else 1008
    tensors = [
        RawTensor(name=DENSE, shape=(4096, 64), type=kind, bytes=2 * EXPERT_BYTES),
        RawTensor(name=NAME, shape=SHAPE, type=kind, bytes=SHAPE[2] * EXPERT_BYTES),
    ]
    content = gguf_bytes(keys, tensors)
    path.write_bytes(content)
    with GgufFile.open(path) as file:
        embedding, expert_tensor = file.tensors[DENSE].offset, file.tensors[NAME].offset
    parts = [
        (0, embedding),
        *((expert_tensor + e * EXPERT_BYTES, expert_tensor + (e + 1) * EXPERT_BYTES) for e in written),
    ]
    if dense:
        parts.append((embedding, embedding + 2 * EXPERT_BYTES))
    path.unlink()
    with path.open("wb") as new:
        os.truncate(path, len(content))
        for start, end in parts:
            new.seek(start)
            new.write(content[start:end])
    return path


def problems(path: Path) -> list[str]:
    with ModelFiles.open(path) as files:
        return list(hole_problems(files))


ALL = list(range(6))


@pytest.mark.parametrize(
    ("experts", "written", "dense"),
    [(None, ALL, True), ([1, 2, 5], [1, 2, 5], False), ([1, 2, 5], ALL, True), ([], [], False)],
)
def test_nothing_is_missing(tmp_path: Path, experts: list[int] | None, written: list[int], dense: bool) -> None:
    assert problems(sparse(tmp_path / "m.gguf", experts, written, dense)) == []


@pytest.mark.parametrize(
    ("experts", "written", "first"),
    [(None, [0, 1, 3, 4, 5], 2), ([1, 2, 5], [1, 5], 2), ([1, 2, 5], [2, 5], 1), ([0, 5], [0, 1, 2, 3, 4], 5)],
)
def test_an_expert_that_must_be_there_is_missing(
    tmp_path: Path, experts: list[int] | None, written: list[int], first: int
) -> None:
    path = sparse(tmp_path / "m.gguf", experts, written)
    (problem,) = problems(path)
    count, at = (int(word) for word in problem.replace(")", " ").split() if word.isdigit())
    with GgufFile.open(path) as file:
        start = file.tensors[NAME].offset + first * EXPERT_BYTES
        assert f"bytes of tensor {NAME!r} were never written" in problem
        assert EXPERT_BYTES - 2 * 4096 <= count <= EXPERT_BYTES  # pages that are shared with others are written
        assert start <= at < start + 4096
        parts = parts_there(file.tensors[NAME], file.pack)
    chosen = ALL if experts is None else experts
    expected = (
        [[0, 6 * EXPERT_BYTES]] if experts is None else [[e * EXPERT_BYTES, (e + 1) * EXPERT_BYTES] for e in chosen]
    )
    np.testing.assert_array_equal(parts - (start - first * EXPERT_BYTES), expected)


def test_the_embedding_of_a_model_may_be_half_empty_and_not_more(tmp_path: Path) -> None:
    (problem,) = problems(sparse(tmp_path / "m.gguf", None, ALL, dense=False))
    assert f"of tensor {DENSE!r} were never written" in problem
