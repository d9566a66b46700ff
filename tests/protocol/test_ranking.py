"""Who comes first where memory is short: every chosen expert once, by rank, or else a layer at a time in turn."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import U8
from protocol.ranking import by_rank


@st.composite
def some_chosen(draw: st.DrawFn) -> U8:
    shape = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    return (np.random.default_rng(draw(st.integers(0, 2**32))).random(shape) < 0.6).astype(np.uint8)


@given(some_chosen(), st.integers(0, 2**32))
def test_the_chosen_come_by_rank(chosen: U8, seed: int) -> None:
    rank = np.random.default_rng(seed).permutation(chosen.size).astype(np.int32).reshape(chosen.shape)
    pairs = by_rank(chosen, rank)
    assert sorted(pairs) == [(int(layer), int(expert)) for layer, expert in np.argwhere(chosen)]
    ranks = [int(rank[pair]) for pair in pairs]
    assert ranks == sorted(ranks)


@given(some_chosen())
def test_without_a_rank_all_that_is_chosen_comes_too_the_first_expert_of_every_layer_first(chosen: U8) -> None:
    pairs = by_rank(chosen, None)
    assert sorted(pairs) == [(int(layer), int(expert)) for layer, expert in np.argwhere(chosen)]
    assert pairs == sorted(pairs, key=lambda pair: pair[::-1])
