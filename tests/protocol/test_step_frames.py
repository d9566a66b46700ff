"""RunExperts and Sums on the wire: laid out as the page says, checked as strictly as plain Python would."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import step_frames_twin
from hypothesis import given, settings
from hypothesis import strategies as st
from message_examples import ANY_STEP_MESSAGE, examples, plain, run_experts, same, sums

import native
from protocol import codec
from protocol.errors import ProtocolError
from protocol.messages import MAX_ENTRIES_PER_ROW, MAX_ROWS, Message, RunExperts, Sums

PACKED = [one for one in examples() if isinstance(one, RunExperts | Sums)]


def frames_of(message: Message) -> list[bytes]:
    return [bytes(frame) for frame in codec.encode(message)]


@pytest.mark.parametrize("message", PACKED, ids=lambda message: type(message).__name__)
def test_frames_are_laid_out_as_the_page_says(message: RunExperts | Sums) -> None:
    assert frames_of(message) == step_frames_twin.frames(message)


@settings(max_examples=150)
@given(ANY_STEP_MESSAGE)
def test_any_message_is_laid_out_so_and_arrives(message: RunExperts | Sums) -> None:
    assert frames_of(message) == step_frames_twin.frames(message)
    assert same(codec.decode(step_frames_twin.frames(message)), message)


def test_large_arrays_have_frames_of_their_own_and_are_not_copied() -> None:
    message = run_experts(rows=64, width=2048)
    frames = codec.encode(message)
    assert len(frames) == 2
    assert np.shares_memory(np.frombuffer(frames[1], np.int8), message.codes)
    decoded = codec.decode(frames)
    assert isinstance(decoded, RunExperts)
    assert np.shares_memory(decoded.codes, message.codes)


def test_decoded_arrays_are_aligned_read_only_views_wherever_frames_lie() -> None:
    wide = sums(rows=40, width=2048, sum48=np.empty((0, 2048, 6), np.uint8), sum64=np.ones((40, 2048), np.int64))
    for message in (run_experts(), wide):
        for shift in range(3):
            moved = [memoryview(bytearray(bytes(shift) + bytes(frame)))[shift:] for frame in codec.encode(message)]
            decoded = codec.decode(moved)
            assert same(decoded, message)
            arrays = [getattr(decoded, field.name) for field in codec.TABLES[type(message).__name__].arrays]
            assert all(array.flags.aligned and not array.flags.writeable for array in arrays)


def test_views_keep_their_frame_alive() -> None:
    codes = codec.decode(frames_of(run_experts())).codes  # type: ignore[attr-defined]
    assert codes.base is not None
    np.testing.assert_array_equal(codes, run_experts().codes)


def test_arrays_that_are_not_contiguous_are_sent_as_they_look() -> None:
    values = np.arange(2 * 2 * 64, dtype=np.float32).reshape(64, 4)[:, ::2].T
    message = run_experts(rows=2, **plain(values))
    assert not values.flags.c_contiguous
    assert same(codec.decode(frames_of(message)), message)


# --- what is not valid is refused ---------------------------------------------------------------------------------

CONTRADICTIONS: list[dict[str, Any]] = [
    {"row": np.array([1, 1], np.int32)},
    {"row": np.array([2, 1], np.int32)},
    {"row": np.array([-1, 1], np.int32)},
    {"row": np.array([0, 1, 2], np.int32)},
    {"entry_row": np.array([0, 2, 0, 1], np.int32)},
    {"entry_row": np.array([0, -1, 0, 1], np.int32)},
    {"entry_row": np.array([0, 0, 0, 1], np.int32)},
    {"entry_row": np.array([1, 0, 0, 1], np.int32)},
    {"entry_row": np.array([0, 1, 0], np.int32)},
    {"entry_expert": np.array([-1, -1, 2, 2], np.int32)},
    {"entry_expert": np.array([2, 2, 0, 0], np.int32)},
    {"entry_weight": np.ones(3, np.float32)},
    {"scales": np.ones((2, 1), np.float32)},
    {"scales": np.ones((1, 2), np.float32)},
    {"codes": np.ones((2, 63), np.int8)},
    {"values": np.ones((2, 64), np.float32)},
    {"placement": -1},
    {"step": -1},
    {"attempt": -1},
    {"layer": -1},
]


@pytest.mark.parametrize("changes", CONTRADICTIONS)
def test_run_experts_that_contradicts_itself_is_not_sent(changes: dict[str, Any]) -> None:
    message = run_experts(rows=2, **changes)
    assert not step_frames_twin.is_sound(message)
    with pytest.raises(ProtocolError):
        codec.encode(message)


@pytest.mark.parametrize("changes", CONTRADICTIONS)
def test_nor_taken(changes: dict[str, Any]) -> None:
    frames = step_frames_twin.frames(run_experts(rows=2, **changes))
    with pytest.raises(ProtocolError):
        codec.decode(frames)


@pytest.mark.parametrize(
    "message",
    [
        run_experts(entry_row=np.array([0, 1], np.int32)),
        run_experts(entry_row=np.array([-1, 0], np.int32)),
        run_experts(entry_expert=np.array([2, 2], np.int32)),
        run_experts(entry_expert=np.array([-1, 2], np.int32)),
        run_experts(row=np.array([-1], np.int32)),
        run_experts(experts=tuple(range(MAX_ENTRIES_PER_ROW + 1))),
        run_experts(rows=MAX_ROWS + 1),
        run_experts(experts=()),
    ],
)
def test_one_row_is_checked_as_strictly(message: RunExperts) -> None:
    assert not step_frames_twin.is_sound(message)
    with pytest.raises(ProtocolError):
        codec.encode(message)
    with pytest.raises(ProtocolError):
        codec.decode(step_frames_twin.frames(message))


@pytest.mark.parametrize(
    "changes",
    [
        {"single_row": np.array([1, 2], np.int32)},
        {"sum_row": np.array([], np.int32)},
        {"sum_row": np.array([1], np.int32)},
        {"sum64": np.zeros((2, 64), np.int64)},
        {"sum48": np.zeros((2, 64, 5), np.uint8)},
        {"single_row": np.arange(MAX_ROWS + 1, dtype=np.int32), "single": np.ones((MAX_ROWS + 1, 64), np.float32)},
    ],
)
def test_sums_that_contradict_themselves_are_refused(changes: dict[str, Any]) -> None:
    message = sums(**changes)
    with pytest.raises(ProtocolError):
        codec.encode(message)
    with pytest.raises(ProtocolError):
        codec.decode(step_frames_twin.frames(message))


@settings(max_examples=300)
@given(st.data())
def test_what_is_taken_is_what_plain_python_calls_sound(data: st.DataObject) -> None:
    rows, entries = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 6))

    def numbers(length: int) -> Any:
        return np.array(data.draw(st.lists(st.integers(-1, 4), min_size=length, max_size=length)), np.int32)

    def ascending(length: int) -> Any:
        return np.sort(numbers(length)) if data.draw(st.booleans()) else numbers(length)

    order = np.argsort(entry_expert := numbers(entries), kind="stable")
    message = run_experts(
        rows,
        width=data.draw(st.sampled_from([32, 33, 64])),
        row=ascending(rows),
        entry_expert=entry_expert[order] if data.draw(st.booleans()) else entry_expert,
        entry_row=ascending(entries),
        entry_weight=np.ones(entries, np.float32),
        step=data.draw(st.sampled_from([0, 0, -1, 2**62])),
    )
    sound = step_frames_twin.is_sound(message)
    for attempt in (codec.encode, lambda message: codec.decode(step_frames_twin.frames(message))):
        if sound:
            attempt(message)  # type: ignore[no-untyped-call]
        else:
            with pytest.raises(ProtocolError):
                attempt(message)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (0, b"\x83"),
        (1, b"\0"),
        (1, b"\x02"),
        (1, b"\x03"),
        (2, b"\1"),
        (4, struct.pack("<I", 40)),
        (4, struct.pack("<I", 2**32 - 1)),
        (40, struct.pack("<I", 0)),  # rows
        (40, struct.pack("<I", 513)),
        (40, struct.pack("<I", 2**32 - 1)),
        (44, struct.pack("<I", 2**31)),  # entries
        (48, struct.pack("<I", 96)),  # width
        (48, struct.pack("<I", 2**32 - 32)),
        (48, struct.pack("<I", 63)),
        (52, struct.pack("<I", 0)),  # form
        (52, struct.pack("<I", 2)),
        (56, b"\xff"),  # session, which is text
    ],
)
def test_a_changed_header_is_refused(offset: int, value: bytes) -> None:
    (first,) = frames_of(run_experts())
    with pytest.raises(ProtocolError):
        codec.decode([first[:offset] + value + first[offset + len(value) :]])


def test_frames_in_another_order_or_without_their_array_are_refused() -> None:
    first, large = frames_of(run_experts(rows=64, width=2048))
    for frames in ([large, first], [first], [first, large, large], [first, first], [first, large[:-1]]):
        with pytest.raises(ProtocolError):
            codec.decode(frames)


@settings(max_examples=500)
@given(st.sampled_from(PACKED), st.data())
def test_no_bytes_at_all_do_harm(message: RunExperts | Sums, data: st.DataObject) -> None:
    """The header of a sound message, then anything; or any header before sound arrays."""
    frames = step_frames_twin.frames(message)
    first = bytearray(frames[0])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(1, min(len(first), 120) - 1))
        width = data.draw(st.sampled_from([1, 4, 8]))
        first[place : place + width] = data.draw(st.binary(min_size=width, max_size=width))
    try:
        decoded = codec.decode([bytes(first), *frames[1:]])
    except ProtocolError:
        return
    assert isinstance(decoded, RunExperts | Sums)
    if isinstance(decoded, RunExperts):
        assert step_frames_twin.is_sound(decoded)
    assert same(codec.decode(frames_of(decoded)), decoded)


def test_native_bounds_are_those_of_the_protocol() -> None:
    assert native.step_bounds() == {
        "MAX_ROWS": MAX_ROWS,
        "MAX_ENTRIES_PER_ROW": MAX_ENTRIES_PER_ROW,
        "MAX_FRAME_BYTES": codec.MAX_FRAME_BYTES,
        "MAX_TEXT_BYTES": codec.MAX_TEXT_BYTES,
        "LARGE_ARRAY_BYTES": codec.LARGE_ARRAY_BYTES,
        "ALIGNMENT": codec.ALIGNMENT,
        "MAGIC": codec.MAGIC,
    }
