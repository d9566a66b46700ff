"""One message in, one out: exact, whatever the split into singles and sums; failures by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_examples import plain, run_experts
from moe_models import write_model
from open_bank import activations, open_bank, rows_of
from twin_kernels import unpack48

import native
from expert_worker.bank import ExpertBank
from protocol import codec
from protocol.errors import ExpertError
from protocol.holder import refusals
from protocol.holder.answer import answer, assign_slots, pack
from protocol.messages import I32, I64, RunExperts, Sums, WorkFailed

LAYERS, EXPERTS, WIDTH = 2, 6, 64
ALL = np.ones((LAYERS, EXPERTS), np.uint8)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExpertBank]:
    path: Path = tmp_path_factory.mktemp("answer") / "m.gguf"
    write_model(path, layers=LAYERS, experts=EXPERTS, experts_used=2, embd=WIDTH, ff_exp=32, vocab=300, heads=2)
    with open_bank(path) as bank:
        yield bank


def work(rows: int, pairs: list[tuple[int, int]], **changes: Any) -> RunExperts:
    """Work for (expert, row) pairs; the window's rows are 10, 11, ..."""
    pairs = sorted(pairs)
    codes, scales = native.Rows(activations(rows, WIDTH)).quantise()
    return run_experts(
        rows,
        codes=codes,
        scales=scales,
        row=np.arange(10, 10 + rows, dtype=np.int32),
        entry_expert=np.array([expert for expert, _ in pairs], np.int32),
        entry_row=np.array([row for _, row in pairs], np.int32),
        entry_weight=np.linspace(0.1, 0.9, len(pairs), dtype=np.float32),
        **changes,
    )


def computed_directly(bank: ExpertBank, message: RunExperts) -> I64:
    """The same entries, all of them summed by the bank; by window row."""
    sums = np.zeros((10 + len(message.row), WIDTH), np.int64)
    rows = refusals.rows_of(bank.layout, message.layer, message.codes, message.scales, message.values)
    slot = -1 - message.row[message.entry_row]
    none = np.empty((0, WIDTH), np.float32)
    bank.run(message.layer, rows, message.entry_expert, message.entry_row, message.entry_weight, slot, none, sums)
    return sums


windows = st.integers(1, 6).flatmap(
    lambda rows: st.tuples(
        st.just(rows), st.sets(st.tuples(st.integers(0, EXPERTS - 1), st.integers(0, rows - 1)), min_size=1)
    )
)


@settings(max_examples=80)
@given(window=windows)
def test_any_window_is_answered_exactly(bank: ExpertBank, window: tuple[int, set[tuple[int, int]]]) -> None:
    message = work(window[0], list(window[1]))
    reply = answer(message, bank, ALL, wait_us=7)
    assert isinstance(reply, Sums)
    np.testing.assert_array_equal(rows_of(reply, 10 + window[0]), computed_directly(bank, message))
    counts = np.bincount(message.entry_row, minlength=window[0])
    assert reply.single_row.tolist() == (10 + np.flatnonzero(counts == 1)).tolist()
    assert reply.sum_row.tolist() == (10 + np.flatnonzero(counts > 1)).tolist()
    assert (reply.session, reply.step, reply.layer, reply.attempt, reply.wait_us) == ("s1", 3, 1, 0, 7)
    codec.decode([bytes(frame) for frame in codec.encode(reply)])


def test_plain_activations_are_answered_too(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", exp_type="F16", layers=2, experts=4, embd=64, ff_exp=32, vocab=300, heads=2)
    message = run_experts(2, (0, 2), 64, **plain(activations(2, 64)))
    with open_bank(path) as bank:
        reply = answer(message, bank, np.ones((2, 4), np.uint8))
        assert isinstance(reply, Sums)
        sums = rows_of(reply, 2)
        assert sums.any(axis=1).all()
        quantised = answer(run_experts(2, (0, 2), 64), bank, np.ones((2, 4), np.uint8))
        assert isinstance(quantised, WorkFailed)
        assert "fp32 expected" in quantised.reason


def test_decoded_work_can_be_run(bank: ExpertBank) -> None:
    decoded = codec.decode([bytes(frame) for frame in codec.encode(work(2, [(0, 0), (0, 1), (3, 1)]))])
    assert isinstance(decoded, RunExperts)
    assert isinstance(answer(decoded, bank, ALL), Sums)


def held_but(layer: int, expert: int) -> Any:
    held = ALL.copy()
    held[layer, expert] = 0
    return held


@pytest.mark.parametrize(
    ("held", "changes", "expert", "words"),
    [
        (None, {}, 0, "placement 1 is not known here"),
        (held_but(1, 3), {}, 3, "expert 3: not held under placement 1"),
        (ALL, {"layer": 2}, -1, "layer 2: the model has layers 0 to 1"),
        (ALL, {"layer": 2**62}, -1, "the model has layers 0 to 1"),
        (ALL, {"entry_expert": np.array([0, EXPERTS], np.int32)}, EXPERTS, "the model has experts 0 to 5"),
        (ALL, {"entry_weight": np.array([0.5, np.nan], np.float32)}, 3, "layer 1, expert 3: "),
        (ALL, {"codes": np.full((1, WIDTH), -128, np.int8)}, -1, "-128"),
        (ALL, {"codes": np.zeros((1, 32), np.int8), "scales": np.zeros((1, 1), np.float32)}, -1, "64 expected"),
    ],
)
def test_what_cannot_be_computed_fails_by_name(
    bank: ExpertBank, held: Any, changes: dict[str, Any], expert: int, words: str
) -> None:
    message = work(1, [(0, 0), (3, 0)])
    for name, value in changes.items():
        object.__setattr__(message, name, value)
    reply = answer(message, bank, held)
    assert isinstance(reply, WorkFailed)
    assert (reply.session, reply.step, reply.layer, reply.attempt) == ("s1", 3, message.layer, 0)
    assert reply.expert == expert
    assert words in reply.reason


def test_nothing_is_computed_of_work_that_is_not_held_completely() -> None:
    class NeverAsked:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(name)

    bank: Any = NeverAsked()
    assert isinstance(answer(work(1, [(0, 0), (3, 0)]), bank, held_but(1, 3)), WorkFailed)


def test_only_an_expert_error_is_an_answer() -> None:
    class Broken:
        def answer(self, *arguments: object) -> None:
            raise ZeroDivisionError

    bank: Any = Broken()
    with pytest.raises(ZeroDivisionError):
        answer(work(1, [(0, 0)]), bank, ALL)


def test_a_row_takes_no_more_experts_than_its_sum_can_hold() -> None:
    full = np.array([0] * 31 + [1], np.int32)
    two = np.arange(2, dtype=np.int32)
    assert len(assign_slots(0, full, two).sum_row) == 1
    with pytest.raises(ExpertError, match="layer 5: 32 experts for one row, 31 at most expected"):
        assign_slots(5, np.array([0] * 32 + [1], np.int32), two)


rows_of_entries = st.integers(1, 9).flatmap(
    lambda rows: st.tuples(st.just(rows), st.lists(st.integers(0, rows - 1), min_size=1, max_size=31))
)


@settings(max_examples=100)
@given(rows_of_entries)
def test_every_entry_has_a_slot_of_its_row(case: tuple[int, list[int]]) -> None:
    rows, entries = case
    row: I32 = np.arange(10, 10 + 2 * rows, 2, dtype=np.int32)
    slots = assign_slots(0, np.array(entries, np.int32), row)
    assert slots.entry_slot.dtype == slots.single_row.dtype == slots.sum_row.dtype == np.int32
    for index, slot in zip(entries, slots.entry_slot.tolist(), strict=True):
        assert (slots.single_row[slot] if slot >= 0 else slots.sum_row[-1 - slot]) == row[index]
        assert (entries.count(index) == 1) == (slot >= 0)
    assert slots.single_row.tolist() == [row[index] for index in range(rows) if entries.count(index) == 1]
    assert slots.sum_row.tolist() == [row[index] for index in range(rows) if entries.count(index) > 1]


def test_sums_travel_in_48_bits_if_all_of_them_fit() -> None:
    fits = np.array([[2**47 - 1, -(2**47), 0, -1]], np.int64)
    packed, wide = pack(fits)
    assert packed.shape == (1, 4, 6)
    assert wide.shape == (0, 4)
    np.testing.assert_array_equal(unpack48(packed), fits)
    assert [int.from_bytes(bytes(value), "little", signed=True) for value in packed[0]] == fits[0].tolist()
    packed, wide = pack(fits + 1)
    assert packed.shape == (0, 4, 6)
    np.testing.assert_array_equal(wide, fits + 1)
