"""The writer of synthetic models gives known bytes: other tests compare with references computed from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import block_pool
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from moe_models import MINI_MODELS, Settings, main, tiny_model, write_model

from protocol.model import Model

MINIS = json.loads(MINI_MODELS.read_text())


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.parametrize("name", MINIS)
def test_mini_models_have_their_digests(mini_model: Callable[[str], Path], name: str) -> None:
    assert digest(mini_model(name)) == MINIS[name]["sha256"]


def test_presets_have_their_digests(tmp_path: Path) -> None:
    tiny = tiny_model(tmp_path)
    assert digest(tiny) == "8f5ce2bda25ab0ef56f260ceea563f4dd9cf23ffbd0fc1654d619b9d8f59b7d6"
    tiny_k = tiny_model(tmp_path, "tiny-k", exp_type="Q4_K")
    assert digest(tiny_k) == "837f03b07a95c71fcd182c78b67f38a7b093c101350e0958a70ab6f9722d6069"


def test_random_blocks_have_their_digest(tmp_path: Path) -> None:
    """The path of the benchmark model, whose preset itself writes gigabytes."""
    few = {"layers": 1, "experts": 2, "experts_used": 1, "vocab": 512, "heads": 4, "embd": 256, "ff_exp": 256}
    path = write_model(tmp_path / "few.gguf", "bench-mid", **few)
    assert digest(path) == "06377455427227e400098212ceafbf61148ab964856fe354eac8d10ab7a88a73"


def test_a_pool_of_blocks_gives_matrices_that_all_differ(tmp_path: Path) -> None:
    """The way of the model of 48 layers, which takes seconds and not minutes."""
    few = {"layers": 2, "experts": 6, "experts_used": 2, "vocab": 512, "heads": 4, "embd": 256, "ff_exp": 256}
    path = write_model(tmp_path / "few.gguf", "wide-48", **few)
    with Model.open(path) as model:
        data = model.files.files[0].file.data
        matrices = [
            bytes(data[role.offset + expert * role.expert_bytes :][: role.expert_bytes])
            for role in model.layout.role_tensors()
            for expert in range(model.layout.experts)
        ]
        types = [role.type.name for role in model.layout.role_tensors()]
    assert types == ["Q4_K", "Q4_K", "Q6_K", "Q4_K", "Q4_K", "Q4_K"]
    assert len(set(matrices)) == len(matrices) == 36
    assert digest(path) == "ee5fe8536ac373667910016dbbc5ddc1fa0e69073bbb8881aa1e9e36e5e25217"


def test_a_piece_may_go_on_at_the_pools_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_pool, "BLOCKS", 8)
    pool = block_pool.BlockPool(np.random.Generator(np.random.SFC64(1)))
    matrices = pool.matrices(8, 5, Type.Q4_K, 1.0).copy()
    assert len({matrix.tobytes() for matrix in matrices}) == 8
    assert len({block.tobytes() for matrix in matrices for block in matrix}) == 8
    with pytest.raises(ValueError, match="9 matrices of Q4_K from a pool, 8 at most are expected"):
        pool.matrices(1, 5, Type.Q4_K, 1.0)
    assert pool.matrices(1, 9, Type.Q4_K, 1.0).shape == (1, 9, 144), "a larger one is drawn by itself"


def test_the_command_line_writes_the_same(tmp_path: Path) -> None:
    main([str(tmp_path / "a.gguf"), "--layers", "1", "--exp-type", "F16", "--tied"])
    write_model(tmp_path / "b.gguf", layers=1, exp_type="F16", tied=True)
    assert digest(tmp_path / "a.gguf") == digest(tmp_path / "b.gguf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gguf", "b.gguf"]


def test_types_follow_their_defaults() -> None:
    plain = Settings.of(dense_type="F16", exp_type="Q4_K", down_type="Q6_K")
    roles = ["gate_type", "down_type", "embd_type", "output_type"]
    assert [plain.type_of(role).name for role in roles] == ["Q4_K", "Q6_K", "F16", "F16"]
    assert Settings.of("bench-mid", exp_type="Q8_0").type_of("down_type").name == "Q8_0"


def test_a_vocabulary_too_small_for_the_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a vocabulary of 100 is too small, at least 273 tokens expected"):
        write_model(tmp_path / "x.gguf", vocab=100)
