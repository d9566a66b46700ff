"""First layers without experts: which tensors they have, and that they keep their numbers everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from gguf_bytes import MOE_TENSORS, RawTensor, moe_bytes

from protocol.errors import ModelError
from protocol.layout import check_dense, dense_problems, dense_tensors, expert_problems
from protocol.model import Model
from protocol.quant_types import TensorType

METADATA = {"qwen3moe.leading_dense_block_count": 1, "qwen3moe.feed_forward_length": 160}
ROUTED = ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
DENSE = {"ffn_gate": (64, 160), "ffn_up": (64, 160), "ffn_down": (160, 64)}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A sound model whose first of two layers is dense, with some tensors replaced."""

    def write(tensors: Mapping[str, RawTensor | None] | None = None) -> Path:
        first: dict[str, RawTensor | None] = {f"blk.0.{name}.weight": None for name in ROUTED}
        for name, shape in DENSE.items():
            tensor = f"blk.0.{name}.weight"
            first[tensor] = RawTensor(name=tensor, shape=shape, type=TensorType.Q8_0)
        path = tmp_path / "dense.gguf"
        path.write_bytes(moe_bytes(METADATA, {**first, **(tensors or {})}))
        return path

    return write


def test_layers_keep_their_numbers(write: Write) -> None:
    with Model.open(write()) as model:
        first, second = model.layout.layers
        assert first is None
        assert second is not None
        assert [(number, layer) for number, layer in model.layout.with_experts()] == [(1, second)]
        assert [role.tensor for role in model.layout.role_tensors()] == [
            f"blk.1.ffn_{role}_exps.weight" for role in ("gate", "up", "down")
        ]
        assert model.layout.largest_blob == second.blob_bytes
        check_dense(model.files, model.geometry)
        assert list(expert_problems(model.files, model.geometry)) == []
        dense = {tensor.name: tensor.shape for tensor in dense_tensors(model.geometry)}
        assert {name: dense[f"blk.0.{name}.weight"] for name in DENSE} == DENSE
        assert dense["blk.1.ffn_gate_inp.weight"] == (64, 4)
        assert not {"blk.0.ffn_gate_inp.weight", "blk.1.ffn_gate.weight"} & dense.keys()


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            RawTensor(name="blk.0.ffn_up.weight", shape=(64, 96), type=TensorType.Q8_0),
            "has shape (64, 96), expected (64, 160)",
        ),
        (
            RawTensor(name="blk.0.ffn_down.weight", shape=(256, 40), type=TensorType.Q2_K),
            "has shape (256, 40), expected (160, 64)",
        ),
        (RawTensor(name="blk.0.ffn_gate_inp.weight", shape=(64, 4)), "is not supported yet for qwen3moe"),
        (MOE_TENSORS["blk.0.ffn_gate_exps.weight"], "is not supported yet for qwen3moe"),
        (RawTensor(name="blk.1.ffn_gate.weight", shape=(64, 160)), "is not supported yet for qwen3moe"),
    ],
)
def test_tensors_that_do_not_fit(write: Write, tensor: RawTensor, message: str) -> None:
    with Model.open(write({str(tensor.name): tensor})) as model:
        [problem] = dense_problems(model.files, model.geometry)
    assert f"tensor '{tensor.name}' {message}" in problem


def test_a_missing_matrix_is_named(write: Write) -> None:
    with (
        Model.open(write({"blk.0.ffn_down.weight": None})) as model,
        pytest.raises(ModelError, match=r"dense\.gguf: tensor 'blk\.0\.ffn_down\.weight' is missing"),
    ):
        check_dense(model.files, model.geometry)
