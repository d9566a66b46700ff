"""Whatever is exchanged, staged or dropped, every source gives the same bits, and copies stay as many as there were."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from open_bank import open_bank
from source_cases import BLOB, EXPERTS, LAYERS, SOURCES, FixedPlanner, copied, make_ready, small_model, sums_of

import expert_worker.sources.copied as copied_module
from expert_worker.bank import ExpertBank
from expert_worker.locking import LockResult
from expert_worker.sources.copied import CopiedSource
from protocol.errors import ExpertError
from protocol.messages import I64, U8

LAYER = 1


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small file of this test's own."""
    return small_model(tmp_path)


@pytest.fixture
def half() -> U8:
    """(LAYERS, EXPERTS): the even ones."""
    made = np.zeros((LAYERS, EXPERTS), np.uint8)
    made[:, ::2] = 1
    return made


@pytest.fixture
def all_copied(model: Path, half: U8) -> Iterator[ExpertBank]:
    """The even ones are assigned, and all of them copied."""
    with open_bank(model, source=SOURCES["all copied"]) as bank:
        make_ready(bank, half)
        yield bank


def stage(bank: ExpertBank, leaves: int, comes: int, layer: int = LAYER) -> None:
    for _ in bank.stage(layer, leaves, comes):
        pass


def alone(path: Path) -> list[list[I64]]:
    """What each expert of each layer makes."""
    with open_bank(path) as bank:
        return [[sums_of(bank, layer, [expert]) for expert in range(EXPERTS)] for layer in range(LAYERS)]


def copies_of(bank: ExpertBank, layer: int = LAYER) -> list[int]:
    return np.flatnonzero(bank.table.placed[layer]).tolist()


@pytest.mark.parametrize("source", SOURCES)
def test_after_64_exchanges_and_their_reverses_all_is_as_it_was(model: Path, half: U8, source: str) -> None:
    expected, random = alone(model), np.random.default_rng(7)
    with open_bank(model, source=SOURCES[source]) as bank:
        make_ready(bank, half)
        before, held, done = bank.table.placed.copy(), half.copy(), []
        copies = bank.counts()["copied_experts"]

        def exchange(layer: int, leaves: int, comes: int) -> None:
            stage(bank, leaves, comes, layer)
            held[layer, comes] = 1
            both = sorted((leaves, comes))
            np.testing.assert_array_equal(sums_of(bank, layer, both), expected[layer][leaves] + expected[layer][comes])
            bank.discard(layer, leaves)
            held[layer, leaves] = 0

        for _ in range(64):
            layer = int(random.integers(LAYERS))
            leaves = int(random.choice(np.flatnonzero(held[layer])))
            comes = int(random.choice(np.flatnonzero(held[layer] == 0)))
            exchange(layer, leaves, comes)
            done.append((layer, leaves, comes))
            for expert in np.flatnonzero(held[layer]).tolist():
                np.testing.assert_array_equal(sums_of(bank, layer, [expert]), expected[layer][expert])
        if isinstance(bank.source, CopiedSource):
            assert bank.counts()["copied_experts"] == copies
            assert not (bank.table.placed > held).any()
        for layer, leaves, comes in reversed(done):
            exchange(layer, comes, leaves)
        np.testing.assert_array_equal(held, half)
        if isinstance(bank.source, CopiedSource):
            np.testing.assert_array_equal(bank.table.placed, before)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), source=st.sampled_from(sorted(SOURCES)))
def test_exchanges_hints_and_shortage_in_any_order_change_no_bit(
    model: Path, half: U8, data: st.DataObject, source: str
) -> None:
    expert, layer = st.integers(0, EXPERTS - 1), st.integers(0, LAYERS - 1)
    what = st.sampled_from(["stage", "begin", "discard", "shed", "grow", "run", "settle", "assign"])
    steps = data.draw(st.lists(st.tuples(what, layer, expert, expert), max_size=30))
    with open_bank(model) as plain, open_bank(model, source=SOURCES[source]) as bank:
        make_ready(bank, half)
        for step, at, one, other in steps:
            if step in ("stage", "begin") and one != other:
                for _ in bank.stage(at, one, other):
                    if step == "begin":
                        break
            elif step == "discard":
                bank.discard(at, one)
            elif step == "shed":
                bank.source.shed(BLOB * one)
            elif step == "grow":
                bank.source.grow(BLOB * one)
            elif step == "settle":
                bank.source.settle()
            elif step == "assign":
                make_ready(bank, half)
            some = sorted({one, other})
            np.testing.assert_array_equal(sums_of(bank, at, some), sums_of(plain, at, some))


@pytest.mark.parametrize("source", SOURCES)
def test_exchanges_beside_the_compute_loop_change_no_bit(model: Path, half: U8, source: str) -> None:
    expected, random, done, failed = alone(model), np.random.default_rng(3), threading.Event(), []
    with open_bank(model, source=SOURCES[source]) as bank:
        make_ready(bank, half)

        def compute() -> None:
            turns = np.random.default_rng(4)
            while not done.is_set():
                layer, one, other = (int(n) for n in turns.integers((LAYERS, EXPERTS, EXPERTS)))
                some = sorted({one, other})
                if not (sums_of(bank, layer, some) == sum(expected[layer][expert] for expert in some)).all():
                    failed.append((layer, some))

        thread = threading.Thread(target=compute)
        thread.start()
        try:
            held = half.copy()
            for turn in range(120):
                layer = turn % LAYERS
                leaves, comes = (int(random.choice(np.flatnonzero(held[layer] == has))) for has in (1, 0))
                stage(bank, leaves, comes, layer)
                goes = leaves if turn % 3 else comes  # committed, or dropped
                bank.discard(layer, goes)
                held[layer, comes], held[layer, goes] = 1, 0
                bank.tend(0.0)
        finally:
            done.set()
            thread.join(30)
        assert not thread.is_alive()
        assert not failed
        bank.tend(0.0)
        if isinstance(bank.source, CopiedSource):
            assert not (bank.table.placed > held).any()


def test_one_copy_more_is_made_and_then_one_given_up(all_copied: ExpertBank) -> None:
    before = all_copied.counts()["copied_bytes"]
    stage(all_copied, leaves=2, comes=5)
    assert copies_of(all_copied) == [0, 2, 4, 5, 6]
    assert all_copied.counts()["copied_bytes"] == before + BLOB
    sums_of(all_copied, LAYER, [2, 5])
    assert all_copied.counts()["copy_hits"] == 2
    all_copied.discard(LAYER, 2)
    assert copies_of(all_copied) == [0, 4, 5, 6]
    assert all_copied.counts()["copied_bytes"] == before


def test_what_is_dropped_leaves_no_copy(all_copied: ExpertBank) -> None:
    stage(all_copied, leaves=2, comes=5)
    all_copied.discard(LAYER, 5)
    assert copies_of(all_copied) == [0, 2, 4, 6]
    next(all_copied.stage(LAYER, 2, 7))  # and dropped before it was ready
    all_copied.discard(LAYER, 7)
    assert copies_of(all_copied) == [0, 2, 4, 6]


def test_the_place_of_one_that_is_no_copy_is_none(model: Path, half: U8) -> None:
    with open_bank(model, source=copied(BLOB)) as bank:
        make_ready(bank, half)  # expert 0 of layer 0 alone is copied
        stage(bank, leaves=2, comes=5)
        assert bank.counts()["copied_experts"] == 1
        stage(bank, leaves=0, comes=1, layer=0)
        bank.discard(0, 0)
        assert (copies_of(bank, 0), copies_of(bank)) == ([1], [])


def test_a_copy_in_use_is_given_up_once_it_is_not(all_copied: ExpertBank) -> None:
    stage(all_copied, leaves=2, comes=5)
    all_copied.source.fetch(LAYER, np.array([2, 4], np.int32))
    all_copied.discard(LAYER, 2)
    all_copied.tend(0.0)
    assert copies_of(all_copied) == [0, 2, 4, 5, 6]
    all_copied.source.release()
    all_copied.tend(0.0)
    assert copies_of(all_copied) == [0, 4, 5, 6]


def test_one_that_is_still_in_use_may_come_back(all_copied: ExpertBank) -> None:
    stage(all_copied, leaves=2, comes=5)
    all_copied.source.fetch(LAYER, np.array([2], np.int32))
    all_copied.discard(LAYER, 2)
    stage(all_copied, leaves=5, comes=2)
    all_copied.source.release()
    all_copied.discard(LAYER, 5)
    all_copied.tend(0.0)
    assert copies_of(all_copied) == [0, 2, 4, 6]


def test_what_was_given_up_for_lack_of_memory_comes_back_in_its_successor(all_copied: ExpertBank) -> None:
    all_copied.source.shed(LAYERS * EXPERTS * BLOB)
    stage(all_copied, leaves=2, comes=5)
    all_copied.discard(LAYER, 2)
    stage(all_copied, leaves=4, comes=7)
    all_copied.discard(LAYER, 7)
    assert copies_of(all_copied) == []
    all_copied.source.grow(LAYERS * EXPERTS * BLOB)
    assert copies_of(all_copied) == [0, 4, 5, 6]


def test_without_memory_for_one_more_it_comes_from_the_file(
    all_copied: ExpertBank, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(count: int) -> U8:
        raise MemoryError(f"no {count} bytes")

    monkeypatch.setattr(copied_module, "allocate", refuse)
    stage(all_copied, leaves=2, comes=5)
    all_copied.discard(LAYER, 2)
    assert copies_of(all_copied) == [0, 4, 6]
    np.testing.assert_array_equal(sums_of(all_copied, LAYER, [5]), alone(model)[LAYER][5])


def test_locked_bytes_are_those_of_the_copies_there_are(model: Path, half: U8) -> None:
    def lock(memory: U8) -> LockResult:
        return LockResult(bytes=memory.nbytes, note="")

    with open_bank(model, source=lambda table: CopiedSource(table, FixedPlanner(None), lock=lock)) as bank:
        make_ready(bank, half)
        for comes, leaves in ((5, 2), (2, 5), (7, 4)):
            stage(bank, leaves, comes)
            bank.discard(LAYER, leaves)
            assert bank.counts()["locked_bytes"] == bank.counts()["copied_bytes"] == half.sum() * BLOB
        bank.source.shed(BLOB)
        assert bank.counts()["locked_bytes"] == (half.sum() - 1) * BLOB


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("leaves", "comes"), [(0, EXPERTS), (EXPERTS, 1), (-1, 1), (0, -1)])
def test_an_expert_that_the_model_has_not_is_refused(model: Path, source: str, leaves: int, comes: int) -> None:
    with open_bank(model, source=SOURCES[source]) as bank, pytest.raises(ExpertError, match="experts 0 to 7"):
        stage(bank, leaves, comes)


@pytest.mark.parametrize("source", SOURCES)
def test_a_file_that_changed_has_nobody_come(model: Path, half: U8, source: str) -> None:
    with open_bank(model, source=SOURCES[source]) as bank:
        make_ready(bank, half)
        os.utime(model, ns=(1, 1))
        with pytest.raises(ExpertError, match=rf"layer {LAYER}, expert 5: .*small\.gguf changed while in use"):
            stage(bank, 2, 5)
        bank.discard(LAYER, 5)
        assert 5 not in copies_of(bank) or source == "shared"
