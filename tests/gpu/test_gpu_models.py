"""Whole models on a GPU: the logits of the processor, bit for bit, wherever the experts lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import small_models
from damaged_experts import experts_of, plant_nan
from device_engine import device_engine, read_together
from gpu_cases import same_bits
from local_engine import greedy, local_engine, read

from protocol.errors import ExpertmeshError
from protocol.model import Model
from protocol.quant_types import RUNNABLE, TensorType

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300), pytest.mark.usefixtures("device")]

TEXT = small_models.TEXT
MINIS = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k"]
NAMES = ["demo", *(f"mini-{name}" for name in MINIS), *small_models.MODELS]


@pytest.fixture(scope="session")
def model_of(
    tmp_path_factory: pytest.TempPathFactory, demo_model: Path, mini_model: Callable[[str], Path]
) -> Callable[[str], Path]:
    """The file of the demo model, of a mini model, or of a small one."""
    folder = tmp_path_factory.mktemp("small-models")

    def model(name: str) -> Path:
        if name == "demo":
            return demo_model
        return mini_model(name[5:]) if name.startswith("mini-") else small_models.small_model(name, folder)

    return model


@pytest.mark.parametrize("kv", ["f16", "f32"])
@pytest.mark.parametrize("name", NAMES)
def test_chunks_of_1_and_64(name: str, kv: str, model_of: Callable[[str], Path]) -> None:
    model = model_of(name)
    with local_engine(model, kv=kv, threads=4) as here, device_engine(model, kv=kv) as there:
        expected = read(here, TEXT)
        for chunk in (64, 1):
            same_bits(read(there, TEXT, chunk), expected, (name, kv, chunk))


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("name", NAMES)
def test_with_experts_in_both_memories(name: str, share: float, model_of: Callable[[str], Path]) -> None:
    model = model_of(name)
    with local_engine(model) as here, device_engine(model, share=share) as there:
        same_bits(read(there, TEXT, 60), read(here, TEXT), (name, share))


@pytest.mark.parametrize("name", ["demo", "mini-f16", "mini-q8_0", "dense-first", "mixed"])
def test_several_sequences_at_once(name: str, model_of: Callable[[str], Path]) -> None:
    model = model_of(name)
    prompts = [TEXT, TEXT[40:110], TEXT[7:10], TEXT[20:21], TEXT[50:115]]
    with local_engine(model) as here, device_engine(model) as there:
        for prompt, found in zip(prompts, read_together(there, prompts, 32), strict=True):
            same_bits(found, read(here, prompt), len(prompt))


def test_the_greedy_text_of_the_demo_model(demo_model: Path) -> None:
    with local_engine(demo_model, kv="f16", threads=4) as here, device_engine(demo_model, kv="f16") as there:
        assert greedy(there, TEXT[:30], 200) == greedy(here, TEXT[:30], 200)


def test_a_damaged_expert_is_named_alike_by_both(tmp_path: Path, demo_model: Path) -> None:
    text = TEXT[:40]
    layer, expert = bad = max(experts_of(demo_model, text, 1))
    without = next(token for token in range(300) if bad not in experts_of(demo_model, [token], 1))
    model = tmp_path / demo_model.name
    model.write_bytes(demo_model.read_bytes())
    plant_nan(model, layer, expert)
    reasons = []
    with local_engine(model) as here, device_engine(model) as there:
        for engine in (here, there):
            with pytest.raises(ExpertmeshError) as raised:
                read(engine, text)
            reasons.append(str(raised.value))
            read(engine, [without])  # whoever does not need it goes on
    assert reasons[0] == reasons[1]
    assert f"layer {layer}, expert {expert}" in reasons[0]


def test_every_type_is_here(model_of: Callable[[str], Path]) -> None:
    """Of those that the kernels compute."""
    found: set[TensorType] = set()
    for name in NAMES:
        with Model.open(model_of(name)) as model:
            found |= {tensor.type for tensor in model.files.tensors.values()}
    assert found >= RUNNABLE
