"""Predictions, from routers that are written down here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from coordinator.config import PREDICTORS as CONFIGURABLE
from expert_worker.lookahead.predict import PREDICTORS, NextRouter, Oracle, Popularity, Previous, Random, top
from expert_worker.lookahead.routers import Routers
from expert_worker.lookahead.trace import read_trace, write_trace
from protocol.errors import ConfigError
from protocol.messages import F32, I32

EXPERTS, CHOSEN, WIDTH = 4, 2, 3
NAN, INF = float("nan"), float("inf")


def routers(layers: int = 3, norms: list[list[float]] | None = None) -> Routers:
    """Expert e of layer l likes column (e + l) % 4; the fourth column does not exist."""
    weights = {}
    for layer in range(layers):
        one = np.zeros((EXPERTS, WIDTH), np.float32)
        for expert in range(EXPERTS):
            if (column := (expert + layer) % EXPERTS) < WIDTH:
                one[expert, column] = 1
        weights[layer] = one
    given = norms or [[1.0] * WIDTH] * layers
    return Routers(
        experts=EXPERTS,
        chosen=CHOSEN,
        weights=weights,
        norms={layer: np.array(norm, np.float32) for layer, norm in enumerate(given)},
    )


def rows(*values: list[float]) -> F32:
    return np.array(values, np.float32).reshape(-1, WIDTH)


def ids(*experts: int) -> I32:
    return np.array(experts, np.int32)


def same(found: I32, expected: I32) -> None:
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("scores", "count", "expected"),
    [
        ([[0, 3, 1, 2]], 2, ids(1, 3)),
        ([[1, 1, 1, 1]], 2, ids(0, 1)),  # ties go to the lowest
        ([[0, 2, 2, 2]], 2, ids(1, 2)),
        ([[0, 3, 1, 2], [9, 0, 0, 8]], 1, ids(0, 1)),
        ([[NAN, 3, NAN, NAN]], 2, ids(1)),
        ([[NAN] * 4], 4, ids()),
        ([[INF, -INF, NAN, 0]], 3, ids(0, 1, 3)),
        ([[1, 2, 3, 4]], 9, ids(0, 1, 2, 3)),
    ],
)
def test_the_highest_are_taken(scores: list[list[float]], count: int, expected: I32) -> None:
    same(top(np.array(scores, np.float32), count), expected)


def test_no_rows_have_no_highest() -> None:
    same(top(np.empty((0, EXPERTS), np.float32), 2), ids())


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 8), st.integers(1, 12)), elements=st.floats(width=32)),
    st.integers(1, 12),
)
def test_the_highest_are_those_of_a_plain_sort(scores: F32, count: int) -> None:
    expected: set[int] = set()
    for row in scores.tolist():
        sound = [expert for expert in range(len(row)) if row[expert] == row[expert]]
        expected |= set(sorted(sound, key=lambda expert: (-row[expert], expert))[:count])
    assert top(scores, count).tolist() == sorted(expected)


def test_the_next_router_sees_this_layers_input() -> None:
    predictor = NextRouter(routers(), rescaled=False)
    same(predictor.predict(0, 0, rows([0, 5, 3])), ids(0, 1))  # layer 1: expert 0 likes column 1, expert 1 column 2
    same(predictor.predict(0, 1, rows([0, 5, 3])), ids(0, 3))  # layer 2: expert 3 likes column 1, expert 0 column 2
    same(predictor.predict(0, 0, rows([0, 5, 3], [9, 8, 0])), ids(0, 1, 3))  # both rows' together
    same(predictor.predict(0, 2, rows([0, 5, 3])), ids())  # there is no next layer
    same(predictor.predict(0, 77, rows([0, 5, 3])), ids())
    same(predictor.predict(0, 0, rows()), ids())
    same(predictor.predict(0, 0, rows([NAN, 1, 2])), ids())


def test_a_margin_names_more_but_no_more_than_there_are() -> None:
    same(NextRouter(routers(), rescaled=False, margin=1).predict(0, 0, rows([0, 5, 3])), ids(0, 1, 2))
    same(NextRouter(routers(), rescaled=False, margin=99).predict(0, 0, rows([0, 5, 3])), ids(0, 1, 2, 3))


def test_a_rescaled_input_has_the_next_layers_norm_in_place_of_its_own() -> None:
    given = routers(norms=[[2, 1, 0], [1, 9, 1], [1, 1, 1]])
    stream = np.array([4.0, 1.0, 0.0], np.float32)
    normed = rows((stream * [2, 1, 0]).tolist())
    same(NextRouter(given, rescaled=True).predict(0, 0, normed), ids(0, 3))  # 4, 9 and 0: columns 1 and 0
    same(NextRouter(given, rescaled=False).predict(0, 0, normed), ids(0, 3))
    narrow = routers(norms=[[1, 1, 1], [0, 0, 1], [1, 1, 1]])
    same(NextRouter(narrow, rescaled=True).predict(0, 0, rows([5, 4, 1])), ids(0, 1))  # 0, 0 and 1


def test_previous_is_what_the_step_before_used() -> None:
    predictor = Previous(routers())
    same(predictor.predict(0, 0, rows([5, 4, 0])), ids())
    same(predictor.predict(0, 1, rows([5, 4, 0])), ids())  # uses experts 0 and 3 of layer 1
    same(predictor.predict(1, 0, rows([0, 0, 1])), ids(0, 3))
    same(predictor.predict(1, 1, rows([0, 0, 1])), ids())  # layer 2's input is never seen


def test_popularity_is_what_was_used_most_and_lately() -> None:
    predictor = Popularity(routers())
    for step in range(5):
        predictor.predict(step, 1, rows([5, 4, 0]))
    same(predictor.predict(5, 0, rows([1, 0, 0])), ids(0, 3))
    for step in range(6, 20):
        predictor.predict(step, 1, rows([0, 4, 5]))
    same(predictor.predict(20, 0, rows([1, 0, 0])), ids(0, 1))
    same(predictor.favourites(2), ids())


def test_random_names_as_many_as_are_used() -> None:
    predictor = Random(routers())
    drawn = [predictor.predict(0, 0, rows([1, 0, 0])) for _ in range(50)]
    assert all(len(set(one.tolist())) == CHOSEN and (np.diff(one) > 0).all() for one in drawn)
    assert len({tuple(one.tolist()) for one in drawn}) == 6  # of 4 experts, 2
    same(predictor.predict(0, 2, rows([1, 0, 0])), ids())


def test_the_oracle_has_read_what_was_used(tmp_path: Path) -> None:
    used = {(0, 1): ids(1, 3), (0, 2): ids(), (7, 1): ids(0)}
    write_trace(tmp_path / "trace.npz", used)
    found = read_trace(tmp_path / "trace.npz")
    assert {key: one.tolist() for key, one in found.items()} == {key: one.tolist() for key, one in used.items()}
    oracle = Oracle(found)
    same(oracle.predict(0, 0, rows()), ids(1, 3))
    same(oracle.predict(7, 0, rows()), ids(0))
    same(oracle.predict(7, 1, rows()), ids())


def test_a_trace_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "noise.npz").write_bytes(b"\x80\x04noise" * 20)
    np.savez(tmp_path / "other.npz", step=np.zeros(2))
    np.savez(tmp_path / "uneven.npz", step=[0], layer=[0], count=[3], experts=[1])
    np.savez(tmp_path / "floats.npz", step=[0.5], layer=[0], count=[1], experts=[1])
    write_trace(tmp_path / "none.npz", {})
    for name in ("missing", "noise", "other", "uneven", "floats"):
        with pytest.raises(ConfigError, match=rf"{name}.npz: a trace of used experts is expected: "):
            read_trace(tmp_path / f"{name}.npz")
    assert read_trace(tmp_path / "none.npz") == {}


def test_without_a_shared_expert_none_is_added() -> None:
    with pytest.raises(ConfigError, match="no shared expert in this model"):
        PREDICTORS["next-router+shared"](routers())


def test_what_a_cluster_file_can_name_there_is() -> None:
    assert set(CONFIGURABLE) == set(PREDICTORS) - {"next-router+shared"}
    assert CONFIGURABLE[0] == next(iter(PREDICTORS))
    for name in CONFIGURABLE:
        PREDICTORS[name](routers()).predict(0, 0, rows([1, 2, 3]))
