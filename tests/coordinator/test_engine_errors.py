"""What the engine refuses, and how it fails: by name, alone, and never with an answer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from local_engine import local_engine, read
from passing_experts import PassingExperts
from small_models import TEXT

import native
from coordinator.dense_half import Rows
from coordinator.engine import Chunk, Engine, ExpertRunner, RowError
from coordinator.sums import LayerSums
from protocol.errors import ConfigError, ExpertmeshError, ModelError, RequestError
from protocol.gguf import GgufFile
from protocol.messages import F32, I32, MAX_ROWS


@pytest.fixture
def engine(small_model: Callable[[str], Path]) -> Iterator[Engine]:
    with local_engine(small_model("q8_0")) as engine:
        yield engine


# --- requests that cannot be ----------------------------------------------------------------------------------------


def test_the_context_is_a_limit(engine: Engine) -> None:
    assert engine.new_sequence(TEXT, 256 - len(TEXT)).room == 256
    with pytest.raises(RequestError, match=r"150 prompt tokens and 107 new ones need 257 positions.* context has 256"):
        engine.new_sequence(TEXT, 257 - len(TEXT))


@pytest.mark.parametrize("error", [MemoryError("std::bad_alloc"), ValueError("larger than any memory")])
def test_a_cache_that_this_machine_has_no_room_for_is_refused_with_its_sizes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def no_room(*sizes: object) -> None:
        raise error

    monkeypatch.setattr(native, "KvCache", no_room)
    with pytest.raises(RequestError, match=r"no room for the keys and values of 7 positions: \d+ layers of \d+ heads"):
        engine.new_sequence([1, 2], 5)
    monkeypatch.undo()
    assert engine.new_sequence([1, 2], 5).room == 7


def test_a_prompt_that_is_far_too_long_is_not_even_read(engine: Engine) -> None:
    with pytest.raises(RequestError, match="context has 256"):
        engine.new_sequence([-1] * 300, 1)


def test_a_sequence_cannot_outgrow_its_room(engine: Engine) -> None:
    sequence = engine.new_sequence(TEXT[:4], 1)
    engine.step([Chunk(sequence=sequence, ids=TEXT[:4])])
    with pytest.raises(RequestError, match="2 tokens do not fit behind the 4 of their sequence: it was opened for 5"):
        engine.step([Chunk(sequence=sequence, ids=TEXT[4:6])])
    engine.step([Chunk(sequence=sequence, ids=TEXT[4:5])])
    assert sequence.room == 0


@pytest.mark.parametrize("token", [-1, 300, 2**31, 2**70])
def test_unknown_ids_are_refused(engine: Engine, token: int) -> None:
    with pytest.raises(RequestError, match=rf"token id {token} at index 2 .* expected 0\.\.299"):
        engine.new_sequence([1, 2, token], 5)
    sequence = engine.new_sequence([1, 2, 3], 5)
    with pytest.raises(RequestError, match=rf"token id {token} at index 1 "):
        engine.step([Chunk(sequence=sequence, ids=[1, token])])


@pytest.mark.parametrize(
    ("prompt", "tokens", "message"),
    [([], 5, "the prompt is empty: one token at least is expected"), ([1], -1, "max_tokens is -1, expected 0 or more")],
)
def test_a_prompt_without_tokens_or_with_fewer_than_none_to_come_is_refused(
    engine: Engine, prompt: list[int], tokens: int, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        engine.new_sequence(prompt, tokens)


def test_windows_that_no_scheduler_makes_are_refused(engine: Engine) -> None:
    sequence = engine.new_sequence(TEXT, 0)
    impossible: list[Sequence[Chunk]] = [
        [],
        [Chunk(sequence=sequence, ids=[])],
        [Chunk(sequence=sequence, ids=[1]), Chunk(sequence=sequence, ids=[2])],
        [Chunk(sequence=sequence, ids=[1] * (MAX_ROWS + 1))],
    ]
    for chunks in impossible:
        with pytest.raises(ValueError, match="window"):
            engine.step(chunks)


def test_an_unknown_type_of_cache_is_refused(small_model: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match="'q8', expected f16 or f32"), local_engine(small_model("q8_0"), kv="q8"):
        pass


# --- damaged models -------------------------------------------------------------------------------------------------


@pytest.fixture
def copy(small_model: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A model's file that may be damaged."""
    return lambda name: Path(shutil.copy(small_model(name), tmp_path / f"{name}.gguf"))


def patch(path: Path, tensor: str, at: int, data: bytes) -> None:
    with GgufFile.open(path) as file:
        offset = file.tensors[tensor].offset
    with path.open("r+b") as stream:
        stream.seek(offset + at)
        stream.write(data)


NAN = {"f32": (96 * 4, np.float32(np.nan).tobytes()), "q8_0": (96 // 32 * 34, np.float16(np.nan).tobytes())}
"""Bytes of an embedding row, and what makes it NaN."""


@pytest.mark.parametrize("name", NAN)
def test_a_row_that_is_not_finite_fails_by_name_and_the_others_go_on(copy: Callable[[str], Path], name: str) -> None:
    path, (row_bytes, nan) = copy(name), NAN[name]
    with local_engine(path) as engine:
        expected = read(engine, [1, 2, 3])
    patch(path, "token_embd.weight", 7 * row_bytes, nan)
    with local_engine(path) as engine:
        good, bad = engine.new_sequence([1, 2, 3], 0), engine.new_sequence([4, 7], 0)
        whole = Chunk(sequence=good, ids=[1, 2, 3], logits="all")
        with pytest.raises(RowError, match=r"layer 0, row 4 of the window \(position 1\)") as caught:
            engine.step([whole, Chunk(sequence=bad, ids=[4, 7])])
        assert caught.value.sequence is bad
        assert engine.step([whole])[0].tobytes() == expected.tobytes()


def test_a_dense_layer_whose_output_is_not_finite_fails_by_name(copy: Callable[[str], Path]) -> None:
    path = copy("dense-first")
    patch(path, "blk.0.ffn_up.weight", 0, np.float16(np.nan).tobytes())
    with local_engine(path) as engine:
        sequence = engine.new_sequence([1, 2], 0)
        reason = "the feed-forward network's output is not finite or 2**22 or more"
        with pytest.raises(RowError) as caught:
            engine.step([Chunk(sequence=sequence, ids=[1, 2])])
        assert str(caught.value) == f"layer 0, row 0 of the window (position 0): {reason}"


@pytest.mark.parametrize("name", NAN)
def test_logits_that_are_not_finite_fail_by_name(copy: Callable[[str], Path], name: str) -> None:
    path = copy(name)
    patch(path, "output_norm.weight", 0, np.float32(np.inf).tobytes())
    with local_engine(path) as engine:
        sequence = engine.new_sequence([1, 2, 3], 0)
        with pytest.raises(RowError, match=r"the head, row 2 of the window \(position 2\)"):
            engine.step([Chunk(sequence=sequence, ids=[1, 2, 3])])
        assert sequence.position == 0


def test_a_single_logit_that_is_not_finite_fails_by_name(copy: Callable[[str], Path]) -> None:
    path = copy("f32")
    patch(path, "output.weight", 7 * NAN["f32"][0], NAN["f32"][1])
    with local_engine(path) as engine:
        chunk = Chunk(sequence=engine.new_sequence([1, 2], 0), ids=[1, 2])
        with pytest.raises(RowError, match=r"the head, row 1 of the window \(position 1\): a logit is NaN or infinite"):
            engine.step([chunk])


def test_a_missing_dense_tensor_is_named(copy: Callable[[str], Path]) -> None:
    path = copy("q8_0")
    path.write_bytes(path.read_bytes().replace(b"blk.1.attn_q.weight", b"blk.1.attn_X.weight"))
    with pytest.raises(ModelError, match=r"blk\.1\.attn_q\.weight"), local_engine(path):
        pass


def test_a_file_that_shrinks_fails_the_step_by_name(copy: Callable[[str], Path]) -> None:
    path = copy("f32")
    with local_engine(path) as engine:
        sequence = engine.new_sequence(TEXT, 0)
        engine.step([Chunk(sequence=sequence, ids=TEXT[:5])])
        os.truncate(path, 20_000)
        with pytest.raises(ExpertmeshError, match=r"f32\.gguf changed while in use"):
            engine.step([Chunk(sequence=sequence, ids=TEXT[5:9])])
        assert sequence.position == 5


def test_a_file_that_is_written_to_fails_the_step_by_name(copy: Callable[[str], Path]) -> None:
    path = copy("q8_0")
    with local_engine(path) as engine:
        patch(path, "output_norm.weight", 0, np.float32(0.5).tobytes())
        with pytest.raises(ExpertmeshError, match=r"q8_0\.gguf changed while in use"):
            read(engine, TEXT[:5])


class Vandal(PassingExperts):
    """Cuts the file before the experts of layer 0 and puts it right, size and time, after those of the last one."""

    def __init__(self, experts: ExpertRunner, path: Path) -> None:
        super().__init__(experts)
        self.path = path

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        if layer == 0:
            self.data, self.stat = self.path.read_bytes(), self.path.stat()
            with GgufFile.open(self.path) as file:
                os.truncate(self.path, file.tensors["blk.1.attn_q.weight"].offset)
            return  # layer 0's experts stay untouched: the fault must be one of the dense half
        os.truncate(self.path, len(self.data))
        os.utime(self.path, ns=(self.stat.st_atime_ns, self.stat.st_mtime_ns))

    def finish_layer(self, step: int) -> None:
        pass


def test_zeros_read_from_a_file_that_shrank_for_a_moment_are_never_used(copy: Callable[[str], Path]) -> None:
    """Nothing is left to see from outside, but layer 1's attention has read zeros."""
    path = copy("f32")
    with (
        local_engine(path, wrap=lambda experts: Vandal(experts, path)) as engine,
        pytest.raises(RequestError, match=r"changed while in use: its bytes at offset \d+ cannot be read"),
    ):
        read(engine, TEXT[:5])
