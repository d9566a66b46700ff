"""Counting: every use of steps that came to their end, once, and less with time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing_experts import PassingExperts
from small_models import TEXT

import native
from coordinator.dense import DenseModel
from coordinator.dense_half import Rows
from coordinator.engine import Chunk, Engine
from coordinator.local import LocalExperts
from coordinator.profile import F64, Profile
from coordinator.profile_recorder import DECAY_ROWS, HALF_LIFE_ROWS, KEPT, Recorder, Routed
from coordinator.sums import LayerSums
from expert_worker.bank import ExpertBank
from protocol.errors import RequestError
from protocol.messages import F32, I32
from protocol.model import Model

LAYERS, EXPERTS = 3, 8


def recorder(rows: int = 0, counts: F64 | None = None) -> Recorder:
    counts = np.zeros((LAYERS, EXPERTS)) if counts is None else counts
    return Recorder(Profile(fingerprint="0" * 16, rows=rows, counts=counts))


def ids_of(rng: np.random.Generator, rows: int, used: int) -> I32:
    return rng.permuted(np.tile(np.arange(EXPERTS), (rows, 1)), axis=1)[:, :used].astype(np.int32)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, EXPERTS), st.booleans(), st.booleans())
def test_every_use_counts_once_in_windows_whole_or_in_halves(
    seed: int, rows: int, used: int, halves: bool, asked_meanwhile: bool
) -> None:
    rng, made, expected = np.random.default_rng(seed), recorder(), np.zeros((LAYERS, EXPERTS))
    for _ in range(3):
        cut = rows // 2 if halves else 0
        routed = [
            (layer, ids_of(rng, part, used))
            for layer in range(1, LAYERS)  # the first is dense
            for part in filter(None, (cut, rows - cut))
        ]
        for layer, ids in routed:
            np.add.at(expected[layer], ids, 1.0)
        made.take(routed, rows)
        if asked_meanwhile:
            np.testing.assert_array_equal(made.profile().counts, expected)
    found = made.profile()
    assert found.rows == made.rows == 3 * rows
    np.testing.assert_array_equal(found.counts, expected)


def uses(expert: int, rows: int = 1, layer: int = 0) -> list[Routed]:
    """Of one expert, by each row."""
    return [(layer, np.full((rows, 1), expert, np.int32))]


def test_a_use_weighs_half_after_the_half_life_and_what_is_new_counts_whole() -> None:
    before = np.zeros((LAYERS, EXPERTS))
    before[0, 0] = 64.0
    made = recorder(rows=5, counts=before)
    for _ in range(HALF_LIFE_ROWS // 512):
        made.take(uses(0, 512, layer=1), 512)
    assert made.rows == 5 + HALF_LIFE_ROWS
    assert made.profile().counts[0, 0] == pytest.approx(32.0, rel=1e-12)
    assert before[0, 0] == 64.0, "the profile that it went on with stays as it was"
    made.take(uses(0), 1)
    assert made.profile().counts[0, 0] == pytest.approx(33.0, rel=1e-12)


@pytest.mark.parametrize("rows", [1, 31, 512])
def test_how_rows_are_put_into_steps_makes_little_difference(rows: int) -> None:
    made = recorder(counts=np.ones((LAYERS, EXPERTS)))
    while made.rows < 3 * DECAY_ROWS:
        made.take(uses(0, rows), rows)
    found = made.profile().counts
    assert found[2, 2] == pytest.approx(KEPT**3, rel=1e-12)
    assert found[0, 0] == pytest.approx(KEPT**3 + DECAY_ROWS * (KEPT + KEPT**2 + KEPT**3), rel=0.03)


class Noting(PassingExperts):
    """Notes the ids of every layer, and fails in one of a step if told to."""

    def __init__(self, experts: LocalExperts, layers: int) -> None:
        super().__init__(experts)
        self.expected: F64 = np.zeros((layers, 0))
        self.fails_in = -1

    def begin_layer(self, step: int, layer: int, rows: Rows, ids: I32, weights: F32, sums: LayerSums) -> None:
        if layer == self.fails_in:
            raise RequestError("told to fail")
        np.add.at(self.expected[layer], ids, 1.0)
        super().begin_layer(step, layer, rows, ids, weights, sums)


@pytest.mark.parametrize("name", ["q8_0", "float-mix"])
def test_an_engine_counts_what_its_experts_were_asked_for(small_model: Callable[[str], Path], name: str) -> None:
    pool = native.Pool(1)
    with Model.open(small_model(name)) as model, ExpertBank(model, pool) as bank:
        made = Recorder(Profile.empty(model))
        experts = Noting(LocalExperts(bank), len(model.layout.layers))
        experts.expected = np.zeros_like(made.profile().counts)
        dense = DenseModel(model, pool, 64, "f32")
        with Engine(model, experts, dense, made) as engine:
            sequence = engine.new_sequence(TEXT[:30], 0)
            for ids in (TEXT[:7], TEXT[7:8], TEXT[8:24]):
                engine.step([Chunk(sequence=sequence, ids=ids)])
            whole = made.profile()
            np.testing.assert_array_equal(whole.counts, experts.expected)
            assert (whole.rows, whole.uses) == (24, 24 * len(whole.known) * model.geometry.experts_used)
            experts.fails_in = len(model.layout.layers) - 1
            with pytest.raises(RequestError, match="told to fail"):
                engine.step([Chunk(sequence=sequence, ids=TEXT[24:30])])
            assert (made.rows, made.profile().uses) == (24, whole.uses)
