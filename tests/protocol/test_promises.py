"""What is left beside other processes' promises, and the line of a ledger, whatever it says."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.host_memory import HostMemory
from protocol.promises import FORM, PROMISES_AT_MOST, LedgerError, Promise, available_beside, decode, encode

GIB = 1 << 30
ROOMY = HostMemory(total=64 * GIB, available=40 * GIB, machine_available=40 * GIB, bound_by=None)
NUMBER = st.integers(0, 1 << 62)
PROMISES = st.builds(
    Promise,
    **dict.fromkeys(("key", "pid", "started", "space", "written", "family", "bytes", "touched"), NUMBER),
    groups=st.lists(NUMBER, max_size=4).map(tuple),
)


def promise(count: int, touched: int = 0, groups: tuple[int, ...] = ()) -> Promise:
    numbers = dict.fromkeys(("key", "pid", "started", "space", "written", "family"), 1)
    return Promise(**numbers, groups=groups, bytes=count * GIB, touched=touched * GIB)


@pytest.mark.parametrize(
    ("promises", "rooms", "left"),
    [
        ([], [], 40),
        ([promise(10)], [], 30),
        ([promise(10, touched=4)], [], 34),
        ([promise(10, touched=10)], [], 40),
        ([promise(10, touched=12)], [], 40),
        ([promise(30), promise(30)], [], 0),
        ([], [(7, 20)], 20),
        ([promise(10)], [(7, 20)], 20),
        ([promise(10, groups=(8,))], [(7, 20)], 20),
        ([promise(10, groups=(7,))], [(7, 20)], 10),
        ([promise(10, groups=(6, 7))], [(5, 30), (7, 20)], 10),
        ([promise(30, groups=(9,))], [(7, 20)], 10),
        ([promise(25, groups=(7,))], [(7, 20)], 0),
    ],
)
def test_what_is_left(promises: list[Promise], rooms: list[tuple[int, int]], left: int) -> None:
    assert available_beside(ROOMY, [(group, room * GIB) for group, room in rooms], promises) == left * GIB


def test_where_memory_is_not_known_nothing_is_left() -> None:
    assert available_beside(replace(ROOMY, unknown="memory.max says 'x'"), [], []) == 0


@given(st.lists(PROMISES, max_size=8), st.binary(max_size=50))
def test_promises_come_back_from_their_line_whatever_follows_it(promises: list[Promise], rest: bytes) -> None:
    assert decode(encode(promises) + rest) == tuple(promises)


@given(st.binary(max_size=300))
def test_any_bytes_are_promises_or_an_error(text: bytes) -> None:
    with suppress(LedgerError):
        assert isinstance(decode(text + b"\n"), tuple)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists))
def test_any_values_of_a_promise_are_refused_or_good(value: Any) -> None:
    def is_number(value: Any) -> bool:
        return type(value) is int and 0 <= value <= 1 << 62

    for name in asdict(promise(1)):
        good = isinstance(value, list) and all(map(is_number, value)) if name == "groups" else is_number(value)
        text = json.dumps({"form": FORM, "promises": [{**asdict(promise(1)), name: value}]}).encode() + b"\n"
        with nullcontext() if good else pytest.raises(LedgerError):
            assert decode(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"x", "it has no line of 65536 bytes at most"),
        (b" " * 70_000 + b"\n", "it has no line of 65536 bytes at most"),
        (b"\n", "its first line is no JSON"),
        (b"[" * 60_000 + b"\n", "its first line is no JSON"),
        (b"[]\n", "it is no 'expertmesh ledger 2'"),
        (b'{"form": "expertmesh ledger 3", "promises": []}\n', "it is no 'expertmesh ledger 2'"),
        (b'{"form": "expertmesh ledger 2", "promises": {}}\n', "it is no 'expertmesh ledger 2'"),
        (
            b'{"form": "expertmesh ledger 2", "promises": [1]}\n',
            "a promise has not the fields bytes, family, groups, key, ",
        ),
        (
            b'{"form": "expertmesh ledger 2", "promises": [' + b"1," * 300 + b"1]}\n",
            "it has 301 promises: expected 256 at most",
        ),
        (encode([promise(1)]).replace(b'"pid": 1', b'"pid": -1'), "pid is -1: expected a number from 0 to 2^62"),
        (encode([promise(1)]).replace(b'"pid": 1', b'"pid": true'), "pid is True: expected a number from 0 to 2^62"),
    ],
)
def test_a_damaged_line(text: bytes, reason: str) -> None:
    with pytest.raises(LedgerError) as caught:
        decode(text)
    assert str(caught.value).startswith(reason)


def test_more_promises_than_a_file_may_have_are_refused() -> None:
    assert len(decode(encode([promise(1)] * PROMISES_AT_MOST))) == PROMISES_AT_MOST
    with pytest.raises(LedgerError, match="257 processes promise memory at once: expected 256 at most"):
        encode([promise(1)] * (PROMISES_AT_MOST + 1))


def test_no_file_is_no_promise() -> None:
    assert decode(b"") == ()
