"""Where windows are cut, when that pays, and that the halves of a window give its bits, one behind the other."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from device_engine import read_together
from emulated_device import emulated_device
from hypothesis import given
from hypothesis import strategies as st
from local_engine import local_engine, read
from passing_experts import PassingExperts
from small_models import MODELS, TEXT

from coordinator.dense_half import Rows, host_rows
from coordinator.engine import Chunk, Engine, ExpertRunner, RowError
from coordinator.halves import Halves, When, cut_of
from coordinator.sums import LayerSums
from native import cuda
from protocol.errors import RequestError
from protocol.gguf import GgufFile
from protocol.messages import F32, I32
from protocol.model import Model


class InHalves(PassingExperts):
    """Has every window of two rows cut, and notes what is begun and finished; layers begin only when they are finished.

    So whatever a dense half left behind for the experts must still be there then. `fail_at` is what cannot be finished.
    """

    def __init__(self, experts: ExpertRunner) -> None:
        super().__init__(experts)
        self.diary: list[tuple[str, int, int]] = []
        """What was done, in which step and layer."""
        self.fail_at: tuple[int, int] | None = None
        self.rows: dict[int, int] = {}
        self._begun: dict[int, tuple[int, Rows, I32, F32, LayerSums]] = {}

    @property
    def halves_from(self) -> int | None:
        return 2

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        assert step not in self._begun
        assert not sums.host.any()
        self.diary.append(("begin", step, layer))
        self.rows[step] = rows.count
        host_rows(rows, isinstance(rows, cuda.CudaRows) and rows.quantised)  # as whoever asks members does
        self._begun[step] = layer, rows, ids, weights, sums

    def finish_layer(self, step: int) -> None:
        layer, *begun = self._begun.pop(step)
        self.diary.append(("finish", step, layer))
        if self.fail_at == (step, layer):
            raise RequestError(f"layer {layer} is lost")
        super().begin_layer(step, layer, *begun)
        super().finish_layer(step)

    def abandon(self) -> None:
        self._begun.clear()
        super().abandon()


@contextmanager
def halved(path: Path, kv: str = "f32", device: cuda.Device | None = None) -> Iterator[tuple[Engine, InHalves]]:
    wrapped: list[InHalves] = []

    def wrap(experts: ExpertRunner) -> InHalves:
        wrapped.append(InHalves(experts))
        return wrapped[0]

    with local_engine(path, kv, wrap=wrap, device=device) as engine:
        yield engine, wrapped[0]


# --- where and when -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "cut"),
    [
        ([2], 1),
        ([1, 1], 1),
        ([1, 1, 1], 1),
        ([1] * 7, 3),
        ([256], 128),
        ([250], 120),  # a multiple of 8
        ([31], 15),
        ([1, 1, 1, 40], 16),  # a prompt beside conversations is cut within
        ([40, 60], 40),  # two prompts are not
        ([37, 63], 48),  # unless they differ too much
        ([10, 90, 60], 100),
    ],
)
def test_windows_are_cut_near_the_middle_and_between_sequences_if_that_is_near(chunks: list[int], cut: int) -> None:
    assert cut_of([0, *itertools.accumulate(chunks)]) == cut


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12).filter(lambda chunks: sum(chunks) > 1))
def test_no_half_has_much_more_than_the_other(chunks: list[int]) -> None:
    cut, rows = cut_of([0, *itertools.accumulate(chunks)]), sum(chunks)
    assert 1 <= cut < rows
    assert max(cut, rows - cut) <= max(5 * rows / 8, rows / 2 + 8)


@pytest.mark.parametrize(
    ("when", "device", "hosts", "rows"),
    [
        ("auto", "cpu", [], None),
        ("auto", "cpu", ["here", "here"], 32),  # 6 experts of which 3 are used: 8 rows for each in each half
        ("auto", "cpu", ["here", "there"], 8),
        ("auto", "cuda:0", ["here", "there"], None),
        ("on", "cpu", [], None),
        ("on", "cuda:0", ["here"], 2),
        ("off", "cpu", ["there"], None),
    ],
)
def test_windows_are_cut_only_if_somebody_else_computes(
    small_model: Callable[[str], Path], when: When, device: str, hosts: list[str], rows: int | None
) -> None:
    with Model.open(small_model("q8_0")) as model:
        halves = Halves.of(when, "here", device, model.geometry)
    assert halves.least_rows(hosts) == rows


# --- the same bits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv", ["f16", "f32"])
@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_in_halves_gives_the_bits_of_the_whole(small_model: Callable[[str], Path], name: str, kv: str) -> None:
    with local_engine(small_model(name), kv) as whole, halved(small_model(name), kv) as (engine, experts):
        expected = read(whole, TEXT)
        for chunk in (512, 37, 2):
            assert read(engine, TEXT, chunk).tobytes() == expected.tobytes()
        assert max(experts.rows.values()) < 80


def test_halves_take_turns_layer_by_layer_under_numbers_of_their_own(small_model: Callable[[str], Path]) -> None:
    with halved(small_model("dense-first")) as (engine, experts):
        read(engine, TEXT[:4])
        assert engine.steps == 2
    begin, finish = "begin", "finish"
    assert experts.diary == [
        (begin, 0, 1), (begin, 1, 1), (finish, 0, 1), (begin, 0, 2), (finish, 1, 1), (begin, 1, 2), (finish, 0, 2),
        (finish, 1, 2),
    ]  # fmt: skip


PROMPTS: Sequence[Sequence[int]] = [TEXT[:70], TEXT[70:71], TEXT[3:36], TEXT[90:92], TEXT[40:45]]


@pytest.mark.parametrize("name", ["q8_0", "mixed"])
@pytest.mark.parametrize("chunk", [1, 9, 70])
def test_sequences_side_by_side_give_what_each_gives_alone(
    small_model: Callable[[str], Path], name: str, chunk: int
) -> None:
    with local_engine(small_model(name)) as whole, halved(small_model(name)) as (engine, _):
        for prompt, logits in zip(PROMPTS, read_together(engine, PROMPTS, chunk), strict=True):
            assert logits.tobytes() == read(whole, prompt).tobytes()


@pytest.mark.parametrize("name", ["q8_0", "dense-first", "f32"])
def test_on_a_device_too(small_model: Callable[[str], Path], name: str) -> None:
    """Few rows, whose launches are recorded, and many; sequences of their own and parts of one chunk."""
    model, prompts = small_model(name), [TEXT[:21], TEXT[21:22], TEXT[5:10]]
    with local_engine(model) as whole, halved(model, device=emulated_device()) as (engine, _):
        for chunk in (21, 2, 1):
            for prompt, logits in zip(prompts, read_together(engine, prompts, chunk), strict=True):
                assert logits.tobytes() == read(whole, prompt).tobytes()


# --- what goes wrong ----------------------------------------------------------------------------------------------


def test_a_bad_row_is_named_as_one_of_the_whole_window(small_model: Callable[[str], Path], tmp_path: Path) -> None:
    path = Path(shutil.copy(small_model("f32"), tmp_path / "bad.gguf"))
    with GgufFile.open(path) as file, path.open("r+b") as stream:
        stream.seek(file.tensors["token_embd.weight"].offset + 7 * 96 * 4)
        stream.write(np.float32(np.nan).tobytes())
    with local_engine(small_model("f32")) as whole, halved(path) as (engine, _):
        good, bad = engine.new_sequence([1, 2, 3], 0), engine.new_sequence([4, 7], 0)
        three = Chunk(sequence=good, ids=[1, 2, 3], logits="all")
        with pytest.raises(RowError, match=r"layer 0, row 4 of the window \(position 1\)") as caught:
            engine.step([three, Chunk(sequence=bad, ids=[4, 7])])
        assert caught.value.sequence is bad
        assert good.position == bad.position == 0
        assert engine.step([three])[0].tobytes() == read(whole, [1, 2, 3]).tobytes()


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_step_of_which_one_half_fails_moves_nothing_and_can_be_repeated(
    small_model: Callable[[str], Path], half: int, layer: int
) -> None:
    with local_engine(small_model("q8_0")) as whole, halved(small_model("q8_0")) as (engine, experts):
        expected = read(whole, TEXT[:20])
        sequence = engine.new_sequence(TEXT[:20], 0)
        engine.step([Chunk(sequence=sequence, ids=TEXT[:4])])
        experts.fail_at = (2 + half, layer)
        with pytest.raises(RequestError, match=f"layer {layer} is lost"):
            engine.step([Chunk(sequence=sequence, ids=TEXT[50:66])])
        assert sequence.ids == TEXT[:4]
        [logits] = engine.step([Chunk(sequence=sequence, ids=TEXT[4:20], logits="all")])
        assert logits.tobytes() == expected[4:].tobytes()


def test_somebody_is_heard_before_each_layer_and_can_end_the_step(small_model: Callable[[str], Path]) -> None:
    class Enough(Exception):
        pass

    with halved(small_model("mixed")) as (engine, experts):
        calls = itertools.count()

        def between_layers() -> None:
            if next(calls) == 2:
                raise Enough

        sequence = engine.new_sequence(TEXT[:8], 0)
        with pytest.raises(Enough):
            engine.step([Chunk(sequence=sequence, ids=TEXT[:8])], between_layers)
        assert experts.diary[-1] == ("finish", 0, 1)
        assert sequence.position == 0
        engine.step([Chunk(sequence=sequence, ids=TEXT[:8])])
        assert sequence.position == 8
