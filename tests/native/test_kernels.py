"""Every kernel against its NumPy twin, bit for bit, on every instruction set that this machine has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import twin_kernels as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from random_weights import BLOCKS, random_rows

import native

TYPES = sorted(BLOCKS)
SMALL_BLOCKS = [kind for kind in TYPES if BLOCKS[kind][0] == 32]
"""Types whose rows may end in a block of fewer than 256 columns."""


@pytest.fixture(params=native.available_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = native.isa()
    native.use_isa(request.param)
    yield request.param
    native.use_isa(before)


@pytest.fixture(params=[1, 2, 3])
def pool(request: pytest.FixtureRequest) -> native.Pool:
    return native.Pool(request.param)


def same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), np.ascontiguousarray(expected).view(np.uint32))


def activations(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    scale = np.exp2(rng.integers(-20, 20, (rows, columns // 32, 1)))
    return (rng.standard_normal((rows, columns // 32, 32)) * scale).astype(np.float32).reshape(rows, columns)


@pytest.mark.parametrize("type_id", TYPES)
@pytest.mark.parametrize(("rows", "columns", "n"), [(1, 256, 1), (9, 512, 5), (40, 768, 3), (16, 256, 9)])
def test_matmul(isa: str, pool: native.Pool, type_id: int, rows: int, columns: int, n: int) -> None:
    rng = np.random.default_rng(rows * columns + n)
    data, x = random_rows(rng, type_id, rows, columns), activations(rng, n, columns)
    out = np.empty((n, rows), np.float32)
    native.matmul(pool, native.Weights(data, type_id, 1, rows, columns), 0, native.Rows(x), out)
    same_bits(out, twin.matmul(data, type_id, columns, x))


@pytest.mark.parametrize(
    ("type_id", "columns"),
    [(0, 7), (0, 96), (1, 40), (30, 33), *((kind, columns) for kind in SMALL_BLOCKS for columns in (32, 96, 224, 288))],
)
def test_rows_that_end_in_a_short_block(isa: str, type_id: int, columns: int) -> None:
    rng = np.random.default_rng(columns)
    data = random_rows(rng, type_id, 11, columns)
    x = rng.standard_normal((2, columns)).astype(np.float32)
    out = np.empty((2, 11), np.float32)
    native.matmul(native.Pool(1), native.Weights(data, type_id, 1, 11, columns), 0, native.Rows(x), out)
    same_bits(out, twin.matmul(data, type_id, columns, x))


@pytest.mark.parametrize("type_id", TYPES)
def test_dequantised_rows_are_those_of_the_gguf_package(type_id: int) -> None:
    from gguf import GGMLQuantizationType, quants

    columns = 608 if type_id in SMALL_BLOCKS else 512
    data = random_rows(np.random.default_rng(3), type_id, 6, columns)
    rows = np.array([5, 0, 3], np.int32)
    found = native.Weights(data, type_id, 1, 6, columns).dequantise(0, rows)
    expected = quants.dequantize(data.reshape(6, -1), GGMLQuantizationType(type_id)).reshape(6, columns)[rows]
    same_bits(found, expected)


@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-160, 120))
@settings(max_examples=60, deadline=None)
def test_quantiser(seed: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.ldexp(rng.standard_normal((3, 96)), exponent).astype(np.float32)
    x[1, :32] = 0
    x[2, 32:64] = np.round(x[2, 32:64] * 4) / 4  # ties
    codes, scales = twin.quantise(x)
    for isa in native.available_isas():
        native.use_isa(isa)
        found_codes, found_scales = native.Rows(x).quantise()
        np.testing.assert_array_equal(found_codes, codes)
        same_bits(np.asarray(found_scales), scales)


def test_quantiser_rounds_ties_to_even_and_reaches_127(isa: str) -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = [127, 0.5, 1.5, -0.5, -1.5, -127]
    codes, scales = native.Rows(x).quantise()
    assert scales[0, 0] == 1.0
    assert codes[0, :6].tolist() == [127, 0, 2, 0, -2, -127]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_activations_are_refused_by_row(isa: str, bad: float) -> None:
    x = np.ones((4, 64), np.float32)
    x[2, 40] = bad
    with pytest.raises(native.NonFiniteError) as error:
        native.Rows(x).quantise()
    assert error.value.args[1] == 2


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_exponential_and_silu(values: list[float]) -> None:
    x = np.array(values, np.float32)
    with np.errstate(all="ignore"):
        exp, silu = twin.exponential(x), twin.silu(x)
    for isa in native.available_isas():
        native.use_isa(isa)
        same_bits(native.exponential(x), exp)
        found = native.silu(x)
        same_bits(found[np.isfinite(silu)], silu[np.isfinite(silu)])


def test_exponential_is_close_to_the_function() -> None:
    x = np.linspace(-87, 88, 100_001).astype(np.float32)
    true = np.exp(x.astype(np.float64))
    assert np.abs(native.exponential(x) / true - 1).max() < 2e-7


@pytest.mark.parametrize("magnitude", [1.0, 1.1386294361119891])
def test_rms_norm_and_rope(isa: str, magnitude: float) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3, 4, 72)).astype(np.float32)
    weight = rng.standard_normal(72).astype(np.float32)
    out = np.empty_like(x)
    native.rms_norm(x, weight, 1e-6, out)
    same_bits(out, twin.rms_norm(x, weight, 1e-6))
    position = np.array([0, 17, 32767], np.int32)
    frequency = 1e6 ** (-np.arange(36) / 36)
    turned = x.copy()
    cos, sin = native.rope_table(position, frequency, magnitude)
    native.rope(turned, cos, sin)
    same_bits(turned, twin.rope(x, position, frequency, magnitude))
    angle = position[:, None] * frequency
    np.testing.assert_allclose(cos, magnitude * np.cos(angle), atol=1e-7)
    np.testing.assert_allclose(sin, magnitude * np.sin(angle), atol=1e-7)


@given(
    seed=st.integers(0, 2**32 - 1), k=st.integers(1, 8), normalise=st.booleans(), scale=st.floats(0.125, 8, width=32)
)
@settings(max_examples=60, deadline=None)
def test_router(seed: int, k: int, normalise: bool, scale: float) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.integers(-4, 4, (5, 16)).astype(np.float32)  # many ties
    ids, weights = native.route(logits, k, normalise, scale)
    twin_ids, twin_weights = twin.route(logits, k, normalise, scale)
    np.testing.assert_array_equal(ids, twin_ids)
    same_bits(weights, twin_weights)
