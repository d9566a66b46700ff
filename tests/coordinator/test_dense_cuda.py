"""The dense half on a device, here an emulated one: the logits of the CPU, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from device_engine import device_engine, read_together
from emulated_device import EmulatedDevice, emulated_device
from local_engine import local_engine, read
from moe_models import tiny_model
from packs import pack_of

from coordinator import cuda_cache
from coordinator.engine import Chunk, Engine, RowError
from native import cuda
from protocol.errors import ConfigError, RequestError

IDS = [int(token) for token in np.random.default_rng(4).integers(0, 256, 70)]


def same_bits(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


def in_chunks(engine: Engine, sizes: Sequence[int], ids: Sequence[int] = IDS) -> np.ndarray:
    """The logits of every position, read in chunks of these sizes."""
    sequence, logits, at = engine.new_sequence(ids, 0), [], 0
    for size in sizes:
        logits += engine.step([Chunk(sequence=sequence, ids=ids[at : at + size], logits="all")])
        at += size
    return np.concatenate(logits)


@pytest.mark.parametrize("kv", ["f16", "f32"])
def test_a_prompt_across_blocks_then_single_tokens(tmp_path: Path, kv: str) -> None:
    model = tiny_model(tmp_path, layers=2)
    with local_engine(model, kv) as here, local_engine(model, kv, device=emulated_device()) as there:
        same_bits(in_chunks(there, [66, 1, 1, 2]), read(here, IDS))


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k"])
def test_models_of_every_kind_of_dense_weights(mini_model: Callable[[str], Path], name: str) -> None:
    model = mini_model(name)
    with local_engine(model) as here, local_engine(model, device=emulated_device()) as there:
        same_bits(in_chunks(there, [9, 1], IDS[:10]), read(here, IDS[:10]))


@pytest.mark.parametrize("name", ["dense-first", "short"])
def test_models_with_other_layers(small_model: Callable[[str], Path], name: str) -> None:
    model = small_model(name)
    with local_engine(model) as here, local_engine(model, device=emulated_device()) as there:
        same_bits(in_chunks(there, [9, 1], IDS[:10]), read(here, IDS[:10]))


@pytest.mark.parametrize("name", ["mixed", "k"])
def test_packs_are_unpacked_on_the_way_to_the_device(
    small_model: Callable[[str], Path], tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "open_device", emulated_device)
    model = small_model(name)
    pack = pack_of(model, tmp_path / "p.gguf")
    with local_engine(model) as here, device_engine(pack, share=0.4) as there:
        (logits,) = read_together(there, [IDS[:12]], chunk=9)
        same_bits(logits, read(here, IDS[:12]))


def test_rows_of_several_sequences_give_what_they_give_alone(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, layers=2)
    prompts = [IDS[:5], IDS[5:18], IDS[18:19]]
    with local_engine(model) as here, local_engine(model, device=emulated_device()) as there:
        sequences = [there.new_sequence(prompt, 4) for prompt in prompts]
        found = there.step(
            [Chunk(sequence=one, ids=ids, logits="all") for one, ids in zip(sequences, prompts, strict=True)]
        )
        for prompt, logits in zip(prompts, found, strict=True):
            same_bits(logits, read(here, prompt))


def test_attention_in_several_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(tmp_path, layers=1)
    ids = (IDS * 4)[:200]
    monkeypatch.setattr(cuda_cache, "PARTIAL_BYTES", 0)  # one block of many rows at a time
    with local_engine(model) as here, local_engine(model, device=emulated_device()) as there:
        same_bits(in_chunks(there, [199, 1], ids), read(here, ids))


def test_launches_of_single_rows_are_recorded(tmp_path: Path) -> None:
    """And give the same bits again and again, in other caches, at other places, and beside others."""
    model, device = tiny_model(tmp_path, layers=2), emulated_device()
    with local_engine(model) as here, local_engine(model, device=device) as there:
        expected = read(here, IDS[:12])
        same_bits(in_chunks(there, [1] * 12, IDS[:12]), expected)
        launched = len(device.recorded)
        same_bits(in_chunks(there, [1] * 12, IDS[:12]), expected)
        assert len(device.recorded) == launched > 0
        one, two = there.new_sequence(IDS[:12], 0), there.new_sequence(IDS[:12], 0)
        for at in range(12):
            chunks = [Chunk(sequence=sequence, ids=IDS[at : at + 1]) for sequence in (one, two)]
            for logits in there.step(chunks):
                same_bits(logits[0], expected[at])


def test_the_head_of_some_rows_only(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, layers=1)
    with local_engine(model) as here, local_engine(model, device=emulated_device()) as there:
        first, second = there.new_sequence(IDS[:5], 0), there.new_sequence(IDS[:3], 0)
        [some, none] = there.step(
            [Chunk(sequence=first, ids=IDS[:5]), Chunk(sequence=second, ids=IDS[:3], logits="none")]
        )
        assert none.shape[0] == 0
        same_bits(some, read(here, IDS[:5])[-1:])


def test_a_row_that_is_not_finite_is_named_and_the_next_step_works(tmp_path: Path) -> None:
    device = emulated_device()
    with local_engine(tiny_model(tmp_path, layers=1), device=device) as engine:
        sequence = engine.new_sequence(IDS[:4], 0)
        chunk = Chunk(sequence=sequence, ids=IDS[:4], logits="all")
        with spoilt_uploads(device), pytest.raises(RowError, match=r"layer 0, row 2 .*: row 2 holds NaN"):
            engine.step([chunk])
        with local_engine(tmp_path / "tiny.gguf") as here:
            same_bits(engine.step([chunk])[0], read(here, IDS[:4]))


def test_a_row_that_is_not_finite_is_named_in_a_dense_layer(small_model: Callable[[str], Path]) -> None:
    device = emulated_device()
    with local_engine(small_model("dense-first"), device=device) as engine:
        chunk = Chunk(sequence=engine.new_sequence(IDS[:4], 0), ids=IDS[:4])
        with spoilt_uploads(device), pytest.raises(RowError, match=r"layer 0, row 2 .*: row 2 holds NaN"):
            engine.step([chunk])


@contextmanager
def spoilt_uploads(device: EmulatedDevice) -> Iterator[None]:
    """Row 2 of every fp32 matrix that is uploaded gets a NaN."""
    upload = device.upload

    def spoilt(host: np.ndarray, to: cuda.Array) -> None:
        if host.dtype == np.float32 and host.ndim == 2:
            host = host.copy()
            host[2, 7] = np.nan
        upload(host, to)

    device.upload = spoilt  # type: ignore[method-assign]
    yield
    device.upload = upload  # type: ignore[method-assign]


def test_no_room_for_a_cache_is_said(tmp_path: Path) -> None:
    model = tiny_model(tmp_path, layers=1)
    device = emulated_device()
    with local_engine(model, device=device) as engine:
        device.room = 1000
        with pytest.raises(RequestError, match=r"no room for the keys and values of 20 positions"):
            engine.new_sequence(IDS[:10], 10)
        device.room = None
        engine.new_sequence(IDS[:10], 10)


def test_no_room_for_a_step_fails_that_step_alone(tmp_path: Path) -> None:
    device = emulated_device()
    with local_engine(tiny_model(tmp_path, layers=1), device=device) as engine:
        sequence = engine.new_sequence(IDS[:4], 0)
        device.room = 100
        with pytest.raises(RequestError, match=r"device cuda:0: no room for \d+ bytes"):
            engine.step([Chunk(sequence=sequence, ids=IDS[:4])])
        device.room = None
        assert engine.step([Chunk(sequence=sequence, ids=IDS[:4])])[0].shape[0] == 1


def test_no_room_for_the_weights_is_said(tmp_path: Path) -> None:
    device = emulated_device()
    device.room = 20_000
    expected = r"the dense weights do not fit: device cuda:0: no room for \d+ bytes"
    with pytest.raises(ConfigError, match=expected), local_engine(tiny_model(tmp_path, layers=1), device=device):
        raise AssertionError("not reached")


def test_windows_of_fewer_and_fewer_rows_with_experts_in_both_memories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded launches of windows that differ in their rows alone."""
    monkeypatch.setattr(cuda, "open_device", emulated_device)
    model = tiny_model(tmp_path, layers=2)
    prompts = [IDS[:9], IDS[10:16], IDS[20:23]]
    with local_engine(model) as here, device_engine(model, share=0.4) as there:
        for prompt, logits in zip(prompts, read_together(there, prompts, chunk=1), strict=True):
            same_bits(logits, read(here, prompt))
