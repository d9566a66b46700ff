"""A worker's answer is added as a whole, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import native
from coordinator.replies import ENTRY_LIMIT, Expected, add_reply
from protocol.errors import ProtocolError
from protocol.messages import I32, I64, Sums

WIDTH = 32
ROWS = np.array([1, 3, 4], np.int32)
INDEX = np.array([0, 1, 2, 1], np.int32)  # row 3 has two entries, rows 1 and 4 have one
EXPECTED = Expected.of(ROWS, INDEX)


def good_reply(wide: bool = False) -> Sums:
    generator = np.random.default_rng(7)
    integers = generator.integers(-(2**40), 2**40, (1, WIDTH))
    packed = native.pack48(integers)
    assert packed is not None
    return Sums(
        session="s",
        step=0,
        layer=0,
        attempt=0,
        single_row=np.array([1, 4], np.int32),
        single=generator.standard_normal((2, WIDTH)).astype(np.float32),
        sum_row=np.array([3], np.int32),
        sum48=np.empty((0, WIDTH, 6), np.uint8) if wide else packed,
        sum64=integers if wide else np.empty((0, WIDTH), np.int64),
        busy_us=1,
        wait_us=1,
    )


def some_sums() -> I64:
    return np.arange(6 * WIDTH, dtype=np.int64).reshape(6, WIDTH)


def test_rows_are_expected_in_the_form_their_entries_call_for() -> None:
    assert EXPECTED.single_row.tolist() == [1, 4]
    assert EXPECTED.sum_row.tolist() == [3]
    assert EXPECTED.sum_limit.tolist() == [[2 * ENTRY_LIMIT]]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_every_row_is_expected_once(rows_of_entries: list[int]) -> None:
    rows, index = np.unique(np.array(rows_of_entries, np.int32), return_inverse=True)
    expected = Expected.of(rows, index.astype(np.int32))
    assert sorted([*expected.single_row.tolist(), *expected.sum_row.tolist()]) == rows.tolist()
    assert all(rows_of_entries.count(row) == 1 for row in expected.single_row.tolist())
    assert expected.sum_limit.ravel().tolist() == [
        rows_of_entries.count(row) * ENTRY_LIMIT for row in expected.sum_row.tolist()
    ]


@pytest.mark.parametrize("wide", [False, True])
def test_a_good_reply_is_added_in_either_form(wide: bool) -> None:
    reply, sums = good_reply(wide), some_sums()
    add_reply(reply, EXPECTED, sums)
    expected = some_sums()
    expected[[1, 4]] += np.rint(reply.single.astype(np.float64) * 2.0**36).astype(np.int64)
    expected[3] += (good_reply(wide=True).sum64)[0]
    np.testing.assert_array_equal(sums, expected)


def test_the_largest_sum_that_entries_can_make_is_added() -> None:
    reply, sums = good_reply(wide=True), np.zeros((6, WIDTH), np.int64)
    add_reply(replace(reply, sum64=np.full((1, WIDTH), 2 * ENTRY_LIMIT - 1)), EXPECTED, sums)
    assert (sums[3] == 2 * ENTRY_LIMIT - 1).all()


def _poked(values: Any, value: Any) -> Any:
    values = values.copy()
    values[-1, -1] = value
    return values


def rows(*numbers: int) -> I32:
    return np.array(numbers, np.int32)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"single_row": rows(0, 4)}, r"rows \[0, 4\] come as single, \[1, 4\] expected"),
        ({"single_row": rows(4, 1)}, "come as single"),
        ({"single_row": rows(1, 1)}, "come as single"),
        ({"single_row": rows(1, 2**31 - 1)}, "come as single"),
        ({"single_row": rows(1), "single": good_reply().single[:1]}, "come as single"),
        ({"sum_row": rows(4)}, r"rows \[4\] come as sum, \[3\] expected"),
        ({"sum_row": rows(-1)}, "come as sum"),
        ({"sum_row": rows(), "sum48": good_reply().sum48[:0]}, "come as sum"),
        ({"single": good_reply().single[:, :-1].copy()}, "single has 31 columns, 32 expected"),
        ({"sum48": good_reply().sum48[:, :-1].copy()}, "sum48 has 31 columns, 32 expected"),
        ({"single": _poked(good_reply().single, np.nan)}, "not finite or too large"),
        ({"single": _poked(good_reply().single, np.inf)}, "not finite or too large"),
        ({"single": _poked(good_reply().single, 2.0**22)}, "not finite or too large"),
    ],
)
def test_anything_else_is_refused_and_nothing_added(change: dict[str, Any], reason: str) -> None:
    sums = some_sums()
    with pytest.raises(ProtocolError, match=reason):
        add_reply(replace(good_reply(), **change), EXPECTED, sums)
    np.testing.assert_array_equal(sums, some_sums())


@pytest.mark.parametrize("value", [2 * ENTRY_LIMIT, -2 * ENTRY_LIMIT, np.iinfo(np.int64).min, np.iinfo(np.int64).max])
def test_a_sum_that_its_entries_cannot_make_is_refused(value: int) -> None:
    reply, sums = good_reply(wide=True), some_sums()
    with pytest.raises(ProtocolError, match="larger than its entries can make it"):
        add_reply(replace(reply, sum64=_poked(reply.sum64, value)), EXPECTED, sums)
    np.testing.assert_array_equal(sums, some_sums())
