"""The engine over small models of every kind of weight: the same bits however rows are put into windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import gguf as gguf_package
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_engine import local_engine, read
from passing_experts import PassingExperts
from reference_model import ReferenceModel
from small_models import MODELS, TEXT

import native
from coordinator.dense import DenseModel
from coordinator.dense_half import Rows
from coordinator.engine import Chunk, Engine, ExpertRunner, TokenSequence
from coordinator.scheduler import Pending, next_window
from coordinator.sums import LayerSums
from coordinator.window import Window
from protocol.errors import RequestError
from protocol.messages import F32, I32, MAX_ROWS
from protocol.model import Model


@pytest.fixture
def engine(small_model: Callable[[str], Path]) -> Iterator[Engine]:
    with local_engine(small_model("q8_0")) as engine:
        yield engine


def bits(logits: F32) -> bytes:
    return logits.tobytes()


# --- the same bits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv", ["f16", "f32"])
@pytest.mark.parametrize("name", MODELS)
def test_prefill_gives_the_same_bits_in_chunks_of_any_size(
    small_model: Callable[[str], Path], name: str, kv: str
) -> None:
    with local_engine(small_model(name), kv) as engine:
        whole = read(engine, TEXT)
        assert np.isfinite(whole).all()
        assert bits(read(engine, TEXT, chunk=1)) == bits(whole)
        assert bits(read(engine, TEXT, chunk=7)) == bits(whole)


@pytest.mark.parametrize("kv", ["f16", "f32"])
@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_gives_the_same_bits_beside_seven_others(
    small_model: Callable[[str], Path], name: str, kv: str
) -> None:
    """Prompts of several lengths are read and continued together, by windows of 24 rows."""
    texts = [TEXT[start : start + rows] for start, rows in enumerate((70, 1, 33, 64, 5, 90, 2, 17))]
    with local_engine(small_model(name), kv) as engine:
        together = read_together(engine, texts, prompt_rows=[60, 1, 3, 64, 1, 70, 2, 10], limit=24)
        for text, logits in zip(texts, together, strict=True):
            assert bits(read(engine, text)) == bits(logits)


def read_together(engine: Engine, texts: list[list[int]], prompt_rows: list[int], limit: int) -> list[F32]:
    """All logits of each text; ids behind its prompt come one a step, as if they had been sampled."""
    sequences = [engine.new_sequence(text, 0) for text in texts]
    parts: list[list[F32]] = [[] for _ in texts]

    def pending(key: int) -> int:
        done = sequences[key].position
        return max(prompt_rows[key] - done, min(1, len(texts[key]) - done))

    while any(map(pending, range(len(texts)))):
        waiting = [Pending(key=key, rows=pending(key), last_step=one.last_step) for key, one in enumerate(sequences)]
        shares = next_window(waiting, limit)
        chunks = [
            Chunk(sequence=sequences[share.key], ids=texts[share.key][at : at + share.rows], logits="all")
            for share in shares
            for at in [sequences[share.key].position]
        ]
        for share, logits in zip(shares, engine.step(chunks), strict=True):
            parts[share.key].append(logits)
    return [np.concatenate(part) for part in parts]


@settings(max_examples=15)
@given(data=st.data())
def test_no_way_to_fill_windows_changes_a_bit(tiny_engine: Engine, data: st.DataObject) -> None:
    texts = [TEXT[:9], TEXT[4:24], TEXT[2:15]]
    sequences = [tiny_engine.new_sequence(text, 0) for text in texts]
    parts: list[list[F32]] = [[] for _ in texts]
    while any(one.room for one in sequences):
        order = data.draw(st.permutations([key for key, one in enumerate(sequences) if one.room]))
        rows = {key: data.draw(st.integers(1, sequences[key].room)) for key in order[: data.draw(st.integers(1, 3))]}
        starts = {key: sequences[key].position for key in rows}
        chunks = [
            Chunk(sequence=sequences[key], ids=texts[key][starts[key] : starts[key] + rows[key]], logits="all")
            for key in rows
        ]
        for key, logits in zip(rows, tiny_engine.step(chunks), strict=True):
            parts[key].append(logits)
    for text, part in zip(texts, parts, strict=True):
        assert bits(read(tiny_engine, text)) == bits(np.concatenate(part))


@pytest.fixture(scope="module")
def tiny_engine(small_model: Callable[[str], Path]) -> Iterator[Engine]:
    with local_engine(small_model("float-mix")) as engine:
        yield engine


@pytest.mark.parametrize("name", MODELS)
def test_threads_and_instruction_sets_give_the_same_bits(small_model: Callable[[str], Path], name: str) -> None:
    found = set()
    used = native.isa()
    try:
        for isa in native.available_isas():
            native.use_isa(isa)
            for threads in (1, 2):
                with local_engine(small_model(name), threads=threads) as engine:
                    found.add(bits(read(engine, TEXT[:40])))
    finally:
        native.use_isa(used)
    assert len(found) == 1


# --- the right numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        *[("f32", 1e-6), ("float-mix", 0.03), ("q8_0", 0.03), ("k", 0.03), ("short", 0.03), ("mixed", 0.03)],
        *[("dense-first", 0.03), ("smallest", 1e-6)],
    ],
)
def test_logits_are_near_those_of_float64(small_model: Callable[[str], Path], name: str, allowed: float) -> None:
    """Layers, head counts and widths that the reference logits do not cover."""
    exact = ReferenceModel(small_model(name)).forward(TEXT[:100]).logits
    with local_engine(small_model(name)) as engine:
        found = read(engine, TEXT[:100])
    distance = np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert np.median(distance) <= allowed


@pytest.mark.parametrize("name", MODELS)
def test_embedding_rows_are_those_of_the_file(small_model: Callable[[str], Path], name: str) -> None:
    reader = gguf_package.GGUFReader(small_model(name))
    [stored] = [tensor for tensor in reader.tensors if tensor.name == "token_embd.weight"]
    expected = gguf_package.quants.dequantize(stored.data, stored.tensor_type).astype(np.float32)[TEXT]
    with Model.open(small_model(name)) as model:
        geometry = model.geometry
        cache = native.KvCache(geometry.layers, len(TEXT), geometry.kv_heads, geometry.head_dim, "f32")
        window = Window.of([Chunk(sequence=TokenSequence(cache), ids=TEXT)], geometry.vocabulary)
        [step] = DenseModel(model, native.Pool(1), MAX_ROWS, "f32").begin([window])
        found = step.buffers.x
        np.testing.assert_array_equal(found, expected)


def test_only_the_logits_asked_for_come_back(engine: Engine) -> None:
    whole = read(engine, TEXT[:12])
    chunks = [
        Chunk(sequence=engine.new_sequence(TEXT[:12], 0), ids=TEXT[:12], logits="none"),
        Chunk(sequence=engine.new_sequence(TEXT[:12], 0), ids=TEXT[:12]),
        Chunk(sequence=engine.new_sequence(TEXT[:12], 0), ids=TEXT[:4], logits="all"),
    ]
    nothing, last, first_four = engine.step(chunks)
    assert nothing.shape == (0, 300)
    assert bits(last) == bits(whole[-1:])
    assert bits(first_four) == bits(whole[:4])
    [alone] = engine.step([Chunk(sequence=chunks[2].sequence, ids=TEXT[4:12], logits="none")])
    assert alone.shape == (0, 300)


# --- what the experts are asked -----------------------------------------------------------------------------------


class Recorder(PassingExperts):
    """Notes every layer that is begun and passes it on; `fail_at` is a layer that cannot be computed."""

    def __init__(self, experts: ExpertRunner) -> None:
        super().__init__(experts)
        self.calls: list[tuple[int, int]] = []
        self.fail_at = -1

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        self.calls.append((step, layer))
        assert not sums.host.any()
        assert ids.shape == weights.shape == (rows.count, 3)
        assert sums.host.shape == (rows.count, rows.columns)
        if layer == self.fail_at:
            raise RequestError(f"layer {layer} is lost")
        super().begin_layer(step, layer, rows, ids, weights, sums)


@pytest.fixture
def recorded(small_model: Callable[[str], Path]) -> Iterator[tuple[Engine, Recorder]]:
    recorders: list[Recorder] = []

    def wrap(experts: ExpertRunner) -> Recorder:
        recorders.append(Recorder(experts))
        return recorders[0]

    with local_engine(small_model("q8_0"), wrap=wrap) as engine:
        yield engine, recorders[0]


def test_experts_are_asked_layer_by_layer_under_the_steps_number(recorded: tuple[Engine, Recorder]) -> None:
    engine, recorder = recorded
    read(engine, TEXT[:3], chunk=1)
    assert recorder.calls == [(step, layer) for step in range(3) for layer in range(2)]
    assert engine.steps == 3


def test_nobody_is_asked_for_dense_layers(small_model: Callable[[str], Path]) -> None:
    recorders: list[Recorder] = []

    def wrap(experts: ExpertRunner) -> Recorder:
        recorders.append(Recorder(experts))
        return recorders[0]

    with local_engine(small_model("dense-first"), wrap=wrap) as engine:
        read(engine, TEXT[:2], chunk=1)
    assert recorders[0].calls == [(step, layer) for step in range(2) for layer in (1, 2)]


def test_a_new_sequence_waits_behind_nobody_newer(engine: Engine) -> None:
    read(engine, TEXT[:3], chunk=1)
    assert engine.new_sequence(TEXT[:3], 0).last_step == 2


def test_a_failed_step_moves_nothing_and_can_be_repeated(recorded: tuple[Engine, Recorder]) -> None:
    engine, recorder = recorded
    expected = read(engine, TEXT[:9])
    sequence = engine.new_sequence(TEXT[:9], 0)
    engine.step([Chunk(sequence=sequence, ids=TEXT[:4])])
    recorder.fail_at = 1
    with pytest.raises(RequestError, match="layer 1 is lost"):
        engine.step([Chunk(sequence=sequence, ids=TEXT[50:55])])
    assert (sequence.ids, sequence.last_step) == (TEXT[:4], 1)
    recorder.fail_at = -1
    [logits] = engine.step([Chunk(sequence=sequence, ids=TEXT[4:9], logits="all")])
    assert bits(logits) == bits(expected[4:])
    assert (sequence.ids, sequence.last_step) == (TEXT[:9], 3)  # the failed attempt was a step of its own
