"""What an inspection says of models: sizes that add up, and every reason against running one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gguf_bytes import MOE_TENSORS, RawTensor, moe_bytes
from split_models import split_model

from coordinator.cli.commands import expertmesh
from coordinator.cli.inspection_view import as_text
from coordinator.gpus import Gpu, _gpu
from coordinator.inspection import Inspection, inspect
from protocol.host_memory import HostMemory
from protocol.quant_types import TensorType
from protocol.shards import ModelFiles
from protocol.wording import size

ROOMY = HostMemory(total=64 * 10**9, available=32 * 10**9, bound_by=None)


def inspected(path: Path) -> Inspection:
    with ModelFiles.open(path) as files:
        return inspect(files)


def page(path: Path, memory: HostMemory = ROOMY, gpus: tuple[Gpu, ...] = ()) -> str:
    with ModelFiles.open(path) as files:
        return as_text(files, inspect(files), memory, gpus)


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Path]:
    """A small model with some keys and tensors replaced; its tokenizer cannot be read."""

    def small(metadata: Mapping[str, Any] | None = None, tensors: Mapping[str, RawTensor | None] | None = None) -> Path:
        path = tmp_path / "small.gguf"
        path.write_bytes(moe_bytes(metadata, tensors))
        return path

    return small


def test_a_sound_model_has_no_problems_and_its_parts_are_all_of_it(demo_model: Path) -> None:
    found = inspected(demo_model)
    assert found.problems == ()
    with ModelFiles.open(demo_model) as files:
        assert sum(part.bytes for part in found.parts) == sum(tensor.bytes for tensor in files.tensors.values())
        assert sum(part.tensors for part in found.parts) == len(files.tensors)
    assert found.dense_bytes + found.expert_bytes == sum(part.bytes for part in found.parts)
    by_name = {(part.name, part.type.name): part for part in found.parts}
    assert by_name["experts, down", "Q6_K"].tensors == 2
    assert by_name["experts, gate", "Q4_K"].token_bytes == by_name["experts, gate", "Q4_K"].bytes * 4 // 16
    assert by_name["embedding", "Q4_K"].token_bytes == 144
    assert found.position_bytes(2) == 2 * 6 * 2 * 32 * 2


def test_a_tied_embedding_is_read_whole(small: Callable[..., Path]) -> None:
    [embedding] = [part for part in inspected(small(tensors={"output.weight": None})).parts if part.name == "embedding"]
    assert embedding.token_bytes == embedding.bytes


def test_a_split_model_says_the_same_as_the_whole_one(demo_model: Path, tmp_path: Path) -> None:
    paths = split_model(demo_model, tmp_path / "split", 3)
    assert inspected(paths[1]) == inspected(demo_model)
    assert f"model      {paths[0]} and 2 more files, 12.8 MiB" in page(paths[2])


def test_every_problem_is_told(small: Callable[..., Path]) -> None:
    tensors = {
        "blk.0.ffn_up_exps.weight": RawTensor(
            name="blk.0.ffn_up_exps.weight", shape=(256, 96, 4), type=TensorType.IQ2_XS
        ),
        "blk.1.attn_k.weight": None,
        "bias": RawTensor(name="blk.1.ffn_up_exps.bias", shape=(96, 4)),
    }
    found = inspected(small({"qwen3moe.attention.sliding_window": 512}, tensors))
    assert list(found.problems) == [
        "'qwen3moe.attention.sliding_window' is 512, which is not supported yet; expected 0",
        "tensor 'blk.1.attn_k.weight' is missing",
        "tensor 'blk.1.ffn_up_exps.bias' is not supported yet for qwen3moe; such tensors found: 1, expected none",
        next(problem for problem in found.problems if "IQ2_XS" in problem),
        "key 'tokenizer.ggml.model' is missing",
    ]


def test_dense_layers_and_scaled_positions_are_told(small_model: Callable[[str], Path]) -> None:
    text = page(small_model("dense-first"))
    assert "layers     3, the first 1 dense, 96 wide; " in text
    assert "made for 256 positions (yarn scaling by 4)\n" in text
    assert "6 a layer, 3 used for each token, 32 wide, 9.56 KiB each\n" in text


def test_another_architecture_is_inspected_too(small: Callable[..., Path]) -> None:
    tensors = {name: RawTensor(name=name, shape=MOE_TENSORS[name].shape, type=TensorType.F32) for name in MOE_TENSORS}
    tensors["blk.0.attn_q.weight"] = RawTensor(name="blk.0.attn_q.weight", shape=(256, 1), type=TensorType.Q2_K)
    found = inspected(small({"general.architecture": "llama", "general.name": "Some Llama"}, tensors))
    assert (found.architecture, found.name, found.geometry) == ("llama", "Some Llama", None)
    assert found.problems[:2] == (
        "architecture 'llama' is not supported; supported: qwen3moe",
        "type Q2_K is not supported",
    )
    assert {part.token_bytes for part in found.parts} == {None}


def test_problems_of_every_layer_are_told_once(small: Callable[..., Path]) -> None:
    names = [f"blk.{layer}.ffn_gate_exps.weight" for layer in range(2)]
    text = page(small(tensors={name: RawTensor(name=name, shape=(256, 96, 4), type=TensorType.Q2_K) for name in names}))
    told = " ".join(text.split())
    assert told.count("ffn_gate_exps") == 1
    assert "the same in 1 other layer" in told
    assert "It cannot be run:" in text


@pytest.mark.parametrize(
    ("available", "text"),
    [
        (20 << 20, "20 MiB available of 64 GiB: all of it fits (12.7 MiB)"),
        (9 << 20, "9 MiB available of 64 GiB: what the coordinator holds fits, and 66% of the experts"),
        (2 << 20, "2 MiB available of 64 GiB: not even what the coordinator holds fits (2.03 MiB)"),
    ],
)
def test_what_fits_where(demo_model: Path, available: int, text: str) -> None:
    text = f"memory     {text}"
    assert text in page(demo_model, HostMemory(total=64 << 30, available=available, bound_by=None)).splitlines()


def test_a_limit_and_gpus_are_told(demo_model: Path) -> None:
    memory = HostMemory(total=1 << 30, available=100 << 20, bound_by=Path("/sys/fs/cgroup/box"))
    text = page(demo_model, memory, (Gpu(name="Some GPU", total=10 << 30, free=9 << 20),))
    assert "memory     100 MiB available of 1 GiB (limit of /sys/fs/cgroup/box): all of it fits (12.7 MiB)" in text
    assert "gpu 0      Some GPU, 9 MiB free of 10 GiB: what the coordinator holds fits, and 66% of the experts" in text
    assert "gpu        none found" in page(demo_model)
    unknown = HostMemory(total=1 << 30, available=0, bound_by=None, unknown="memory.max says 'x'")
    assert "memory     not known how much is available: memory.max says 'x'" in page(demo_model, unknown)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1000 bytes"),
        (1024, "1 KiB"),
        (1010 << 10, "1010 KiB"),
        (5_099_600_000, "4.75 GiB"),
        (10_000 << 30, "10000 GiB"),
    ],
)
def test_sizes_in_words(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("NVIDIA H200, 143771, 143000", Gpu(name="NVIDIA H200", total=143771 << 20, free=143000 << 20)),
        ("NVIDIA H200, [N/A], 143000", None),
        ("No devices were found", None),
    ],
)
def test_lines_of_the_drivers_tool(line: str, gpu: Gpu | None) -> None:
    assert _gpu(line) == gpu


def test_as_json(demo_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = CliRunner().invoke(expertmesh, ["model", "inspect", "--json", str(demo_model)])
    assert run.exit_code == 0
    told = json.loads(capfd.readouterr().out)
    assert told["files"] == [{"path": str(demo_model), "bytes": demo_model.stat().st_size}]
    assert told["geometry"]["experts"] == 16
    assert told["dense_bytes"] + told["expert_bytes"] == sum(part["bytes"] for part in told["parts"])
    assert told["problems"] == []


def test_the_exit_code_tells_whether_it_can_be_run(
    demo_model: Path, small: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    reason = "- key 'tokenizer.ggml.model' is missing\n"
    for path, code, text in ((demo_model, 0, "It can be run.\n"), (small(), 1, reason)):
        run = CliRunner().invoke(expertmesh, ["model", "inspect", str(path)])
        assert run.exit_code == code
        assert capfd.readouterr().out.endswith(text)
