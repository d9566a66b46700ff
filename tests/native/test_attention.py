"""Attention: each row gives the bits of its twin, which it gives alone, whatever else is in its window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import twin_kernels as twin
from hypothesis import given, settings
from hypothesis import strategies as st

import native
from protocol.messages import F32, I32


@pytest.fixture(params=native.available_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = native.isa()
    native.use_isa(request.param)
    yield request.param
    native.use_isa(before)


@dataclass(frozen=True, slots=True)
class Shape:
    """Of all sequences of one window."""

    kv_heads: int
    group: int
    """Query heads that share a kv head."""
    dim: int
    kind: str

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """A cache and what was stored in it, as the cache's type keeps it: (positions, kv_heads, dim)."""

    cache: native.KvCache
    keys: F32
    values: F32


def sequence(rng: np.random.Generator, shape: Shape, length: int, chunk: int = 50) -> Sequence:
    """Random keys and values in layer 1 of 2, stored chunk by chunk."""
    cache = native.KvCache(2, length + int(rng.integers(0, 70)), shape.kv_heads, shape.dim, shape.kind)
    both = rng.standard_normal((2, length, shape.kv_heads, shape.dim)).astype(np.float32)
    for start in range(0, length, chunk):
        cache.store(1, start, *(kv[start : start + chunk].copy() for kv in both))
    return Sequence(cache, *both.astype(np.float16 if shape.kind == "f16" else np.float32).astype(np.float32))


def attend(pool: native.Pool, query: F32, sequences: list[Sequence], row_cache: I32, row_position: I32) -> F32:
    rows, heads, dim = query.shape
    out = np.full((rows, heads * dim), np.nan, np.float32)
    native.attention(pool, 1, query, [one.cache for one in sequences], row_cache, row_position, out)
    return out.reshape(query.shape)


def twin_row(shape: Shape, query: F32, of: Sequence, position: int) -> F32:
    """query (heads, dim) at one position."""
    kv = [
        (of.keys[: position + 1, h // shape.group], of.values[: position + 1, h // shape.group])
        for h in range(shape.heads)
    ]
    return np.stack([twin.attend(one, *pair) for one, pair in zip(query, kv, strict=True)])


def same_bits(found: F32, expected: F32) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_rows_of_several_sequences(isa: str, threads: int, kind: str) -> None:
    rng, shape = np.random.default_rng(6), Shape(2, 3, 40, kind)
    sequences = [sequence(rng, shape, length) for length in (1, 64, 150)]
    row_cache, row_position = np.array([2, 0, 2, 1], np.int32), np.array([149, 0, 64, 63], np.int32)
    query = rng.standard_normal((4, shape.heads, shape.dim)).astype(np.float32)
    out = attend(native.Pool(threads), query, sequences, row_cache, row_position)
    for row in range(4):
        same_bits(out[row], twin_row(shape, query[row], sequences[row_cache[row]], int(row_position[row])))


@pytest.mark.parametrize("dim", [2, 16, 24, 40, 48, 64, 72, 80, 96, 112, 128, 192, 256])
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_every_size_of_head(isa: str, dim: int, kind: str) -> None:
    rng, shape = np.random.default_rng(dim), Shape(1, 5, dim, kind)
    of = sequence(rng, shape, 130)
    position = np.array([129, 62, 63, 64, 5], np.int32)
    query = rng.standard_normal((5, shape.heads, dim)).astype(np.float32)
    out = attend(native.Pool(1), query, [of], np.zeros(5, np.int32), position)
    for row in range(5):
        same_bits(out[row], twin_row(shape, query[row], of, int(position[row])))


@given(
    seed=st.integers(0, 2**32 - 1),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 9),
    dim=st.sampled_from([2, 16, 18, 32, 40, 64, 80, 128]),
    kind=st.sampled_from(["f16", "f32"]),
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=3),
    rows=st.integers(1, 90),
)
@settings(max_examples=40, deadline=None)
def test_a_window_gives_each_row_what_it_gives_alone(
    seed: int, kv_heads: int, group: int, dim: int, kind: str, lengths: list[int], rows: int
) -> None:
    """Chunks of prompts and single rows side by side, in any order, stored in chunks of any size."""
    rng, shape, pool = np.random.default_rng(seed), Shape(kv_heads, group, dim, kind), native.Pool(2)
    sequences = [sequence(rng, shape, length, int(rng.integers(1, 100))) for length in lengths]
    if rng.random() < 0.5:
        row_cache = np.sort(rng.integers(0, len(lengths), rows))
    else:
        row_cache = rng.integers(0, len(lengths), rows)
    row_position = rng.integers(0, np.array(lengths)[row_cache])
    if rng.random() < 0.5:  # as in a prompt
        row_position.sort()
        row_position = np.minimum(row_position, np.array(lengths)[row_cache] - 1)
    row_cache, row_position = row_cache.astype(np.int32), row_position.astype(np.int32)
    query = rng.standard_normal((rows, shape.heads, dim)).astype(np.float32)
    for isa in native.available_isas():
        native.use_isa(isa)
        together = attend(pool, query, sequences, row_cache, row_position)
        picked = range(rows) if isa != "scalar" else rng.integers(0, rows, 3).tolist()
        for row in picked:
            alone = attend(
                pool,
                query[row : row + 1],
                [sequences[row_cache[row]]],
                np.zeros(1, np.int32),
                row_position[row : row + 1],
            )
            same_bits(together[row], alone[0])
        row = picked[0]
        same_bits(together[row], twin_row(shape, query[row], sequences[row_cache[row]], int(row_position[row])))


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_what_lies_behind_a_row_does_not_reach_it(isa: str, kind: str) -> None:
    """NaN at later positions, in the block that the row itself ends in, as a conversation that is taken back leaves."""
    rng, shape = np.random.default_rng(8), Shape(1, 4, 32, kind)
    of = sequence(rng, shape, 100)
    query = rng.standard_normal((2, shape.heads, shape.dim)).astype(np.float32)
    rows = np.zeros(2, np.int32), np.array([70, 40], np.int32)
    before = attend(native.Pool(1), query, [of], *rows)
    bad = np.full((29, 1, shape.dim), np.nan, np.float32)
    of.cache.store(1, 71, bad, bad)
    same_bits(attend(native.Pool(1), query, [of], *rows), before)


@given(st.lists(st.integers(0, 0x7BFF), min_size=1, max_size=64))
@settings(max_examples=50, deadline=None)
def test_half_precision_caches_round_like_ieee(halves: list[int]) -> None:
    """Values around every half, subnormals included, are stored as NumPy rounds them."""
    near = np.array(halves, np.uint16).view(np.float16).astype(np.float32)
    x = np.concatenate([near, near * np.float32(1 + 2**-12), -near * np.float32(1 - 2**-12), near + np.float32(2**-25)])
    n = len(x)
    for isa in native.available_isas():
        native.use_isa(isa)
        cache = native.KvCache(1, 1, 1, n, "f16")
        cache.store(0, 0, np.zeros((1, 1, n), np.float32), x.reshape(1, 1, n))
        out = np.empty((1, n), np.float32)
        one = np.zeros(1, np.int32)
        native.attention(native.Pool(1), 0, np.zeros((1, 1, n), np.float32), [cache], one, one, out)
        np.testing.assert_array_equal(out[0], x.astype(np.float16).astype(np.float32))
