"""A worker's answer is added as a whole, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_kernels import unpack48

import native
from coordinator.replies import add_reply
from protocol.errors import ProtocolError
from protocol.messages import F32, I32, I64, Sums

WIDTH = 32
ASKED = np.array([1, 3, 4, 3], np.int32)  # row 3 has two entries, rows 1 and 4 have one
ENTRY_LIMIT = 1 << 58
"""An entry's magnitude on the fixed-point grid is below this: 2**22 on a grid of 2**-36."""


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


def fixed(values: F32) -> I64:
    return np.rint(values.astype(np.float64) * 2.0**36).astype(np.int64)


def twin(reply: Sums, asked: list[int], sums: I64) -> I64 | None:
    """What the sums are afterwards, in plain Python; None if the reply is none that was asked for."""
    once = sorted(row for row in set(asked) if asked.count(row) == 1)
    more = sorted(row for row in set(asked) if asked.count(row) > 1)
    if reply.single_row.tolist() != once or reply.sum_row.tolist() != more:
        return None
    if not (np.abs(reply.single) < 2.0**22).all():
        return None
    wide = reply.sum64 if len(reply.sum64) else unpack48(reply.sum48)
    for row, values in zip(more, wide.tolist(), strict=True):
        if any(abs(value) >= asked.count(row) * ENTRY_LIMIT for value in values):
            return None
    total = sums.copy()
    total[reply.single_row] += fixed(reply.single)
    total[reply.sum_row] += wide
    return total


@settings(max_examples=200)
@given(st.data())
def test_any_reply_is_added_or_refused_as_plain_python_would(data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=12))
    once = sorted(row for row in set(asked) if asked.count(row) == 1)
    more = sorted(row for row in set(asked) if asked.count(row) > 1)
    width = data.draw(st.integers(1, 3))
    floats = st.sampled_from([0.5, -1.25, 2.0**-40, 4194303.5, 2.0**22, -(2.0**22), float("nan")])
    limits = [0, 1, -1, 2 * ENTRY_LIMIT, -2 * ENTRY_LIMIT, 3 * ENTRY_LIMIT - 1, -(2**63), 2**47]
    kinds = st.one_of(st.just(limits[:3]), st.just(limits))
    wide = np.array(
        [[data.draw(st.sampled_from(data.draw(kinds))) for _ in range(width)] for _ in more], np.int64
    ).reshape(len(more), width)
    packed = native.pack48(wide) if data.draw(st.booleans()) else None
    if data.draw(st.integers(0, 5)) == 0:
        once = once[::-1] if data.draw(st.booleans()) else [row + 1 for row in once]
    reply = Sums(
        session="s",
        step=0,
        layer=0,
        attempt=0,
        single_row=np.array(once, np.int32),
        single=np.array([[data.draw(floats) for _ in range(width)] for _ in once], np.float32).reshape(-1, width),
        sum_row=np.array(more, np.int32),
        sum48=np.empty((0, width, 6), np.uint8) if packed is None else packed,
        sum64=wide if packed is None else np.empty((0, width), np.int64),
        busy_us=1,
        wait_us=1,
    )
    sums = np.arange(6 * width, dtype=np.int64).reshape(6, width)
    expected = twin(reply, asked, sums)
    before = sums.copy()
    if expected is None:
        with pytest.raises(ProtocolError):
            add_reply(reply, np.array(asked, np.int32), sums)
        np.testing.assert_array_equal(sums, before)
    else:
        add_reply(reply, np.array(asked, np.int32), sums)
        np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("wide", [False, True])
def test_a_good_reply_is_added_in_either_form(wide: bool) -> None:
    reply, sums = good_reply(wide), some_sums()
    add_reply(reply, ASKED, sums)
    expected = some_sums()
    expected[[1, 4]] += fixed(reply.single)
    expected[3] += (good_reply(wide=True).sum64)[0]
    np.testing.assert_array_equal(sums, expected)


def test_the_largest_sum_that_entries_can_make_is_added() -> None:
    reply, sums = good_reply(wide=True), np.zeros((6, WIDTH), np.int64)
    add_reply(replace(reply, sum64=np.full((1, WIDTH), 2 * ENTRY_LIMIT - 1)), ASKED, sums)
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
        add_reply(replace(good_reply(), **change), ASKED, sums)
    np.testing.assert_array_equal(sums, some_sums())


@pytest.mark.parametrize("value", [2 * ENTRY_LIMIT, -2 * ENTRY_LIMIT, np.iinfo(np.int64).min, np.iinfo(np.int64).max])
def test_a_sum_that_its_entries_cannot_make_is_refused(value: int) -> None:
    reply, sums = good_reply(wide=True), some_sums()
    with pytest.raises(ProtocolError, match="larger than its entries can make it"):
        add_reply(replace(reply, sum64=_poked(reply.sum64, value)), ASKED, sums)
    np.testing.assert_array_equal(sums, some_sums())
