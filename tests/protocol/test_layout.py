"""Where experts lie, and every way in which a file can contradict it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from gguf_bytes import MOE_TENSORS, RawTensor, moe_bytes

from protocol.errors import ModelError
from protocol.geometry import Geometry
from protocol.layout import ExpertLayout, RoleTensor, check_dense, dense_tensors, expert_tensor, slot_size
from protocol.quant_types import TensorType
from protocol.shards import ModelFiles

GATE, DOWN = "blk.1.ffn_gate_exps.weight", "blk.1.ffn_down_exps.weight"
Tensors = dict[str, RawTensor | None]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[Tensors], ModelFiles]]:
    """Opens a sound small model with some tensors replaced, by their fields, added, or left out."""
    files: list[ModelFiles] = []

    def opened(tensors: Tensors) -> ModelFiles:
        path = tmp_path / f"model-{len(files)}.gguf"
        path.write_bytes(moe_bytes(tensors=tensors))
        files.append(ModelFiles.open(path))
        return files[-1]

    yield opened
    for file in files:
        file.close()


Open = Callable[[Tensors], ModelFiles]


def changed(name: str, **fields: Any) -> Tensors:
    return {name: replace(MOE_TENSORS[name], **fields)}


def layout_of(gguf: ModelFiles) -> ExpertLayout:
    return ExpertLayout.of(gguf, Geometry.of(gguf))


@pytest.mark.parametrize("name", ["bf16", "q8_0", "q4_k"])
def test_slices_are_the_experts(mini_model: Callable[[str], Path], name: str) -> None:
    reference = {tensor.name: tensor for tensor in GGUFReader(mini_model(name)).tensors}
    with ModelFiles.open(mini_model(name)) as gguf:
        layout = layout_of(gguf)
        assert len(layout.layers) == 2
        for layer in layout.layers:
            for role in layer.roles:
                stored = reference[role.tensor].data  # (experts, rows, bytes of a row)
                assert (len(stored), role.file) == (layout.experts, gguf.path.name)
                for expert in range(layout.experts):
                    start = role.offset + expert * role.expert_bytes
                    found = gguf.files[0].file.data[start : start + role.expert_bytes]
                    np.testing.assert_array_equal(found, stored[expert].reshape(-1).view(np.uint8))
                assert (role.rows, role.columns) == tuple(reference[role.tensor].shape[1::-1])


def test_roles_and_sizes(opened: Open) -> None:
    layout = layout_of(opened({}))
    layer = layout.layers[1]
    assert [role.tensor for role in layer.roles] == [expert_tensor(1, role) for role in ("gate", "up", "down")]
    assert [(role.rows, role.columns) for role in layer.roles] == [(96, 64), (96, 64), (64, 96)]
    assert (layout.experts, layout.width, layout.expert_width) == (4, 64, 96)
    assert layer.gate.expert_bytes == 96 * 68
    assert layer.blob_bytes == layout.largest_blob == 96 * 68 * 2 + 64 * 102
    assert (slot_size(1), slot_size(256), layer.slot_bytes) == (256, 256, 3 * 6656)


@pytest.mark.parametrize(
    ("gate", "up", "quantised"),
    [("Q8_0", "Q8_0", True), ("F16", "Q8_0", False), ("Q8_0", "BF16", False), ("F32", "F32", False)],
)
def test_activations_travel_quantised_unless_gate_or_up_is_a_float(
    opened: Open, gate: str, up: str, quantised: bool
) -> None:
    types = {"gate": TensorType[gate], "up": TensorType[up], "down": TensorType.F32}
    tensors: Tensors = {}
    for role, kind in types.items():
        tensors |= changed(expert_tensor(0, role), type=kind)
    layout = layout_of(opened(tensors))
    assert [layer.quantised_input for layer in layout.layers] == [quantised, True]


def altered(layout: ExpertLayout, **fields: Any) -> ExpertLayout:
    """The layout with some fields of the second layer's gate changed."""
    first, second = layout.layers
    return replace(layout, layers=(first, replace(second, gate=replace(second.gate, **fields))))


ALTERATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"tensor": "blk.9.ffn_gate_exps.weight"}, "tensor 'blk.9.ffn_gate_exps.weight' is missing"),
    "type": ({"type": TensorType.Q4_K}, f"tensor '{GATE}' has type Q8_0, expected Q4_K"),
    "shape": ({"rows": 95}, f"tensor '{GATE}' has shape (64, 96, 4), expected (64, 95, 4) (columns first)"),
    "bytes": (
        {"expert_bytes": 6000},
        f"tensor '{GATE}' has 26112 bytes, expected 24000 (6000 for each of 4 experts)",
    ),
    "offset": ({"offset": 64}, f"tensor '{GATE}' starts at {{offset}}, expected 64"),
}


@pytest.mark.parametrize(("fields", "message"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_another_models_layout_is_refused(opened: Open, fields: dict[str, Any], message: str) -> None:
    gguf = opened({})
    layout = layout_of(gguf)
    layout.check(gguf)
    with pytest.raises(ModelError) as caught:
        altered(layout, **fields).check(gguf)
    assert str(caught.value) == f"{gguf.path}: {message.format(offset=layout.layers[1].gate.offset)}"


def test_checks_come_in_their_order(opened: Open) -> None:
    gguf = opened({})
    layout = layout_of(gguf)
    fields: dict[str, Any] = {}
    found = []
    for _, (more, _) in reversed(ALTERATIONS.items()):
        fields |= more  # each further alteration is noticed before those already there
        with pytest.raises(ModelError) as caught:
            altered(layout, **fields).check(gguf)
        found.append(str(caught.value))
    assert len(set(found)) == 5
    for text, word in zip(found, ["starts at", "bytes", "shape", "type", "missing"], strict=True):
        assert word in text


def test_a_tensor_that_ends_outside_of_the_file(opened: Open) -> None:
    gguf = opened({})
    layout = layout_of(gguf)
    gguf.files[0].file.size = layout.layers[1].down.offset  # as if the mapping were of another, shorter file
    with pytest.raises(ModelError, match=rf"tensor '{DOWN}' ends at \d+, expected at most \d+, the file's size"):
        layout.check(gguf)


def test_a_truncated_file_does_not_open(opened: Open) -> None:
    path = opened({}).path
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(ModelError, match=r"was it truncated\?"):
        ModelFiles.open(path)


@pytest.mark.parametrize("name", [GATE, DOWN])
def test_a_missing_expert_tensor(opened: Open, name: str) -> None:
    gguf = opened({name: None})
    with pytest.raises(ModelError, match=rf"model-0\.gguf: tensor '{name}' is missing"):
        layout_of(gguf)


def test_an_expert_type_that_cannot_be_computed(opened: Open) -> None:
    gguf = opened(changed(GATE, type=TensorType.IQ4_NL))
    with pytest.raises(ModelError, match=rf"'{GATE}' has type IQ4_NL, which is not supported yet; supported: F32, F16"):
        layout_of(gguf)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        (GATE, (64, 96, 3), (64, 96, 4)),
        (GATE, (96, 64, 4), (64, 96, 4)),
        (GATE, (64, 96), (64, 96, 4)),
        (GATE, (64, 96, 4, 1), (64, 96, 4)),
        (DOWN, (64, 96, 4), (96, 64, 4)),
    ],
)
def test_an_expert_tensor_of_another_shape(
    opened: Open, name: str, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    gguf = opened(changed(name, shape=shape))
    with pytest.raises(ModelError) as caught:
        layout_of(gguf)
    assert str(caught.value) == f"{gguf.path}: tensor '{name}' has shape {shape}, expected {expected} (columns first)"


def test_the_dense_tensors_of_a_sound_model(opened: Open) -> None:
    gguf = opened({})
    geometry = Geometry.of(gguf)
    check_dense(gguf, geometry)
    dense = {tensor.name: tensor.shape for tensor in dense_tensors(geometry)}
    assert dense == {name: t.shape for name, t in MOE_TENSORS.items() if "_exps" not in name}


def test_a_tied_head_needs_no_tensor(opened: Open) -> None:
    gguf = opened({"output.weight": None})
    geometry = Geometry.of(gguf)
    check_dense(gguf, geometry)
    assert "output.weight" not in {tensor.name for tensor in dense_tensors(geometry)}


DENSE: dict[str, tuple[Tensors, str]] = {
    "missing": ({"blk.1.attn_k.weight": None}, "tensor 'blk.1.attn_k.weight' is missing"),
    "shape": (
        changed("blk.0.attn_q.weight", shape=(64, 64)),
        "tensor 'blk.0.attn_q.weight' has shape (64, 64), expected (64, 128) (columns first)",
    ),
    "head": (
        changed("output.weight", shape=(64, 6)),
        "tensor 'output.weight' has shape (64, 6), expected (64, 5) (columns first)",
    ),
    "router": (
        changed("blk.1.ffn_gate_inp.weight", shape=(64, 5)),
        "tensor 'blk.1.ffn_gate_inp.weight' has shape (64, 5), expected (64, 4) (columns first)",
    ),
    "type": (
        changed("token_embd.weight", type=TensorType.MXFP4),
        "tensor 'token_embd.weight' has type MXFP4, which is not supported yet; "
        "supported: F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16",
    ),
    "norm type": (
        changed("blk.0.ffn_norm.weight", type=TensorType.F16),
        "tensor 'blk.0.ffn_norm.weight' has type F16, expected F32",
    ),
    "attention bias": (
        {"b": RawTensor(name="blk.0.attn_q.bias", shape=(128,)), "c": RawTensor(name="blk.1.attn_q.bias")},
        "tensor 'blk.0.attn_q.bias' is not supported yet for qwen3moe; such tensors found: 2, expected none",
    ),
    "rope factors": (
        {"r": RawTensor(name="rope_freqs.weight", shape=(16,))},
        "tensor 'rope_freqs.weight' is not supported yet for qwen3moe; such tensors found: 1, expected none",
    ),
}


@pytest.mark.parametrize(("tensors", "message"), DENSE.values(), ids=DENSE)
def test_dense_tensors_that_do_not_fit(opened: Open, tensors: Tensors, message: str) -> None:
    gguf = opened(tensors)
    with pytest.raises(ModelError) as caught:
        check_dense(gguf, Geometry.of(gguf))
    assert str(caught.value) == f"{gguf.path}: {message}"


def test_role_tensors_come_layer_by_layer(opened: Open) -> None:
    roles = list(layout_of(opened({})).role_tensors())
    assert all(isinstance(role, RoleTensor) for role in roles)
    assert [role.tensor for role in roles] == [
        expert_tensor(layer, role) for layer in range(2) for role in ("gate", "up", "down")
    ]


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q8_0", "q4_k"])
def test_the_reference_models_pass(mini_model: Callable[[str], Path], name: str) -> None:
    with ModelFiles.open(mini_model(name)) as gguf:
        geometry = Geometry.of(gguf)
        ExpertLayout.of(gguf, geometry).check(gguf)
        check_dense(gguf, geometry)
        assert len(dense_tensors(geometry)) + 6 == len(gguf.tensors)


def test_the_demo_model_passes(demo_model: Path) -> None:
    with ModelFiles.open(demo_model) as gguf:
        geometry = Geometry.of(gguf)
        layout = ExpertLayout.of(gguf, geometry)
        check_dense(gguf, geometry)
        assert {role.type.name for role in layout.role_tensors()} == {"Q4_K", "Q6_K"}
