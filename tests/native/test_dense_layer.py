"""A layer's calls give the bits of their operations one by one; what they refuse leaves everything usable."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from random_weights import random_rows, stored
from single_operations import SingleOperations

import native
from coordinator.activations import Activations
from coordinator.weights import LayerWeights
from protocol.messages import F32, I32

EPS, LAYERS = 1e-5, 2
CHOICE = 3, True, 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Of a model's dense half."""

    width: int = 64
    kv_heads: int = 2
    group: int = 3
    dim: int = 32
    experts: int = 8
    types: tuple[int, ...] = (12,) * 5
    """Of query, key, value, output and router; Q8_0 stands in for those whose blocks do not fit, and F32 for that."""
    packed: bool = False

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group

    def matrix(self, rng: np.random.Generator, role: int, rows: int, columns: int) -> native.Weights:
        kinds = (self.types[role], 8, 0)
        kind = next(kind for kind in kinds if columns % {0: 1, 1: 1, 30: 1, 2: 32, 8: 32}.get(kind, 256) == 0)
        return stored(random_rows(rng, kind, rows, columns), kind, 1, rows, columns, packed=self.packed)


def layer_weights(rng: np.random.Generator, shape: Shape) -> LayerWeights[native.Weights, F32]:
    of_heads, of_kv = shape.heads * shape.dim, shape.kv_heads * shape.dim
    return LayerWeights(
        attention_norm=normal(rng, shape.width),
        query=shape.matrix(rng, 0, of_heads, shape.width),
        key=shape.matrix(rng, 1, of_kv, shape.width),
        value=shape.matrix(rng, 2, of_kv, shape.width),
        query_norm=normal(rng, shape.dim),
        key_norm=normal(rng, shape.dim),
        output=shape.matrix(rng, 3, shape.width, of_heads),
        ffn_norm=normal(rng, shape.width),
    )


def normal(rng: np.random.Generator, *shape: int) -> F32:
    return rng.standard_normal(shape).astype(np.float32)


def half_of(weights: LayerWeights[native.Weights, F32]) -> native.AttentionHalf:
    in_order = [getattr(weights, field.name) for field in fields(weights)][:-1]
    return native.AttentionHalf(*in_order, EPS)


def buffers_of(shape: Shape, rows: int) -> Activations[NDArray[Any]]:
    """Full of what a step before may have left there."""
    heads, kv = (rows, shape.heads, shape.dim), (rows, shape.kv_heads, shape.dim)
    sizes = {"x": (rows, shape.width), "normed": (rows, shape.width), "query": heads, "key": kv, "value": kv}
    sizes |= {"attended": (rows, shape.heads * shape.dim), "router": (rows, shape.experts)}
    arrays = {name: np.full(size, np.nan, np.float32) for name, size in sizes.items()}
    return Activations(**arrays, sums=np.zeros((rows, shape.width), np.int64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """A step's memory, and the step as native code and as single operations have it."""

    buffers: Activations[NDArray[Any]]
    native: native.StepBuffers
    single: SingleOperations

    @classmethod
    def of(
        cls, shape: Shape, pool: native.Pool, x: F32, caches: list[native.KvCache], row_cache: I32, position: I32
    ) -> Side:
        buffers = buffers_of(shape, len(x))
        buffers.x[:] = x
        cos, sin = native.rope_table(position, 0.1 ** np.arange(shape.dim // 2), 1.0)
        seven = [getattr(buffers, field.name) for field in fields(buffers)][:-1]
        single = SingleOperations(
            pool=pool,
            eps=EPS,
            buffers=buffers,
            cos=cos,
            sin=sin,
            caches=caches,
            row_cache=row_cache,
            row_position=position,
        )
        step = native.StepBuffers(*seven, cos, sin, caches, row_cache, position)
        return cls(buffers=buffers, native=step, single=single)


def attempt(work: Callable[..., Any], *arguments: Any) -> Any:
    """What it gives, or what NonFiniteError says."""
    try:
        return work(*arguments)
    except native.NonFiniteError as error:
        return error.args


def same_bits(found: NDArray[Any], expected: NDArray[Any]) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


ANY_TYPE = st.sampled_from([0, 1, 30, 2, 8, 12, 14])
SHAPES = st.builds(
    Shape,
    width=st.sampled_from([32, 64, 256]),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 4),
    dim=st.sampled_from([2, 16, 32, 64]),
    experts=st.integers(3, 40),
    types=st.tuples(*[ANY_TYPE] * 5),
    packed=st.booleans(),
)


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=SHAPES,
    threads=st.integers(1, 3),
    kind=st.sampled_from(["f16", "f32"]),
    windows=st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3).filter(any), min_size=1, max_size=3),
    quantise=st.booleans(),
    bad=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_one_call_is_its_operations_one_by_one(
    seed: int, shape: Shape, threads: int, kind: str, windows: list[list[int]], quantise: bool, bad: bool
) -> None:
    """Windows of chunks of three sequences, one after the other; `bad`: one row of the last is not finite."""
    rng, pool = np.random.default_rng(seed), native.Pool(threads)
    weights = layer_weights(rng, shape)
    router = shape.matrix(rng, 4, shape.experts, shape.width)
    half, chosen = half_of(weights), native.ExpertRouter(weights.ffn_norm, router, EPS, *CHOICE)
    quantise &= shape.width % 32 == 0
    both = [
        [native.KvCache(LAYERS, sum(each) + 1, shape.kv_heads, shape.dim, kind) for each in zip(*windows, strict=True)]
        for _ in range(2)
    ]
    stored_before = np.zeros(3, np.int64)
    for number, chunks in enumerate(windows):
        row_cache = np.repeat(np.arange(3), chunks).astype(np.int32)
        position = np.concatenate([start + np.arange(n) for start, n in zip(stored_before, chunks, strict=True)])
        x = normal(rng, len(row_cache), shape.width)
        if bad and number == len(windows) - 1:
            x[rng.integers(len(x)), 0] = np.inf
        one, apart = (Side.of(shape, pool, x, caches, row_cache, position.astype(np.int32)) for caches in both)
        for layer in range(LAYERS):
            refused = attempt(half.attend, pool, layer, one.native)
            assert refused == attempt(apart.single.attend, layer, weights)
            same_bits(one.buffers.x, apart.buffers.x)
            if refused is not None:
                return
            same_bits(one.buffers.attended, apart.buffers.attended)
            routed = attempt(chosen.route, pool, one.native, quantise)
            expected = attempt(apart.single.route, weights.ffn_norm, router, *CHOICE, quantise)
            same_route(routed, expected, quantise)
        stored_before += chunks


def same_route(found: Any, expected: Any, quantise: bool) -> None:
    if not isinstance(expected[0], native.Rows):
        assert found == expected
        return
    rows, ids, shares = found
    np.testing.assert_array_equal(ids, expected[1])
    same_bits(shares, expected[2])
    if not quantise:
        same_bits(rows.values(), expected[0].values())
        return
    with pytest.raises(ValueError, match="hold no fp32 values"):
        rows.values()
    for mine, theirs in zip(rows.quantise(), expected[0].quantise(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture
def pool() -> native.Pool:
    return native.Pool(2)


def three_rows(shape: Shape, pool: native.Pool, rng: np.random.Generator, **changed: Any) -> Side:
    """Rows 0 and 1 begin one sequence, row 2 another; caches have room for four positions."""
    given: dict[str, Any] = {
        "x": normal(rng, 3, shape.width),
        "caches": [native.KvCache(LAYERS, 4, shape.kv_heads, shape.dim, "f32") for _ in range(2)],
        "row_cache": np.array([0, 0, 1], np.int32),
        "position": np.array([0, 1, 0], np.int32),
    }
    return Side.of(shape, pool, **given | changed)


def test_a_bad_row_is_named_and_the_step_can_be_tried_again(pool: native.Pool) -> None:
    rng, shape = np.random.default_rng(1), Shape(width=256)
    half = half_of(layer_weights(rng, shape))
    side = three_rows(shape, pool, rng)
    x = side.buffers.x.copy()
    side.buffers.x[1] = np.nan
    with pytest.raises(native.NonFiniteError) as found:
        half.attend(pool, 0, side.native)
    assert found.value.args[1] == 1
    side.buffers.x[:] = x
    half.attend(pool, 0, side.native)
    rng = np.random.default_rng(1)
    weights = layer_weights(rng, shape)
    other = three_rows(shape, pool, rng)
    other.single.attend(0, weights)
    same_bits(side.buffers.x, other.buffers.x)


@pytest.mark.parametrize(
    ("layer", "position", "words"),
    [
        (0, [0, 1, 1], r"position \(no holes\): 0 to 0 expected, found 1"),
        (0, [-1, 0, 0], r"position \(no holes\): 0 to 0 expected, found -1"),
        (2, [0, 1, 0], "layer: out of range"),
        (-1, [0, 1, 0], "layer: out of range"),
    ],
)
def test_positions_that_cannot_be_stored_are_refused_before_anything_is_done(
    pool: native.Pool, layer: int, position: list[int], words: str
) -> None:
    rng, shape = np.random.default_rng(2), Shape()
    half = half_of(layer_weights(rng, shape))
    caches = [native.KvCache(LAYERS, 4, shape.kv_heads, shape.dim, "f32") for _ in range(2)]
    table = three_rows(shape, pool, rng, caches=caches)
    seven = [getattr(table.buffers, field.name) for field in fields(table.buffers)][:-1]
    at = np.array(position, np.int32)
    step = native.StepBuffers(*seven, table.single.cos, table.single.sin, caches, table.single.row_cache, at)
    before = table.buffers.x.copy()
    with pytest.raises(ValueError, match=words):
        half.attend(pool, layer, step)
    same_bits(table.buffers.x, before)
    assert np.isnan(table.buffers.normed).all()
    half.attend(pool, 0, table.native)


def test_a_full_cache_is_refused(pool: native.Pool) -> None:
    rng, shape = np.random.default_rng(3), Shape()
    half = half_of(layer_weights(rng, shape))
    small = [native.KvCache(LAYERS, size, shape.kv_heads, shape.dim, "f16") for size in (1, 4)]
    with pytest.raises(ValueError, match="rows that the capacity has room for: 0 to 1 expected, found 2"):
        half.attend(pool, 0, three_rows(shape, pool, rng, caches=small).native)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"row_cache": [0, 0, 2]}, "row_cache: out of range"),
        ({"row_cache": [-1, 0, 0]}, "row_cache: out of range"),
        ({"row_cache": [0, 1, 0]}, "row_cache: must ascend"),
        ({"row_cache": [0, 1]}, "row_cache: length: 3 expected, found 2"),
        ({"position": [0, 2, 0]}, "row_position: must count up"),
        ({"position": [1, 1, 0]}, "row_position: must count up"),
    ],
)
def test_rows_out_of_order_make_no_step(pool: native.Pool, changed: dict[str, list[int]], words: str) -> None:
    arrays = {name: np.array(value, np.int32) for name, value in changed.items()}
    with pytest.raises(ValueError, match=words):
        three_rows(Shape(), pool, np.random.default_rng(4), **arrays)


def test_caches_and_buffers_of_another_shape_make_no_step(pool: native.Pool) -> None:
    rng, shape = np.random.default_rng(5), Shape()
    with pytest.raises(ValueError, match="caches: kv heads or head_dim differ"):
        three_rows(shape, pool, rng, caches=[native.KvCache(LAYERS, 4, shape.kv_heads, 2, "f32")] * 2)
    with pytest.raises(TypeError):
        three_rows(shape, pool, rng, caches=[None])


def test_a_step_of_another_model_is_refused(pool: native.Pool) -> None:
    rng, shape = np.random.default_rng(6), Shape()
    weights = layer_weights(rng, shape)
    half = half_of(weights)
    router = native.ExpertRouter(weights.ffn_norm, shape.matrix(rng, 4, 8, shape.width), EPS, *CHOICE)
    for other in (
        replace(shape, width=32),
        replace(shape, dim=16),
        replace(shape, group=2),
        replace(shape, kv_heads=1),
    ):
        with pytest.raises(ValueError, match=r"step: .* expected"):
            half.attend(pool, 0, three_rows(other, pool, rng).native)
    for other in (replace(shape, width=32), replace(shape, experts=9)):
        with pytest.raises(ValueError, match=r"step: .* expected"):
            router.route(pool, three_rows(other, pool, rng).native, True)


def test_weights_that_do_not_fit_each_other_make_no_half() -> None:
    rng, shape = np.random.default_rng(7), Shape()
    weights = layer_weights(rng, shape)
    wrong = shape.matrix(rng, 0, shape.dim, shape.dim)
    for name in ("query", "key", "value", "output"):
        with pytest.raises(ValueError, match=r"(query|key|value|output): (rows|columns): \d+ expected"):
            half_of(replace(weights, **{name: wrong}))
    for k in (0, 9):
        with pytest.raises(ValueError, match=f"k: 1 to 8 expected, found {k}"):
            native.ExpertRouter(weights.ffn_norm, shape.matrix(rng, 4, 8, shape.width), EPS, k, True, 1.0)


def test_what_they_are_made_of_is_kept_alive(pool: native.Pool) -> None:
    shape, found = Shape(width=256), []
    for keep in (True, False):
        rng = np.random.default_rng(8)
        weights = layer_weights(rng, shape)
        router_weights = shape.matrix(rng, 4, 8, shape.width)
        half, router = half_of(weights), native.ExpertRouter(weights.ffn_norm, router_weights, EPS, *CHOICE)
        side = three_rows(shape, pool, rng)
        step = side.native
        if not keep:
            del weights, router_weights, side
            gc.collect()
            np.full(1 << 20, np.nan, np.float32)  # over what would have been freed
        half.attend(pool, 0, step)
        rows, _, shares = router.route(pool, step, False)
        del step
        gc.collect()
        found.append((rows.values().copy(), shares))
    for first, second in zip(*found, strict=True):
        same_bits(first, second)


def test_values_of_a_route_stay_when_the_next_layer_has_the_buffers(pool: native.Pool) -> None:
    rng, shape = np.random.default_rng(9), Shape()
    weights = layer_weights(rng, shape)
    side = three_rows(shape, pool, rng)
    router = native.ExpertRouter(weights.ffn_norm, shape.matrix(rng, 4, 8, shape.width), EPS, *CHOICE)
    rows, _, _ = router.route(pool, side.native, False)
    before = rows.values().copy()
    half_of(weights).attend(pool, 1, side.native)
    same_bits(rows.values(), before)
