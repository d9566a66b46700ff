"""Frames in, messages out; and nothing but ProtocolError for frames that are none."""

from __future__ import annotations

import tracemalloc
from typing import Any, get_args

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from message_examples import ANY_MESSAGE, examples, hello, plain, run_experts, same, submit, sums, welcome

from protocol import codec
from protocol.errors import ProtocolError
from protocol.fields import MAX_DEPTH, MAX_ITEMS, MAX_TEXT_BYTES
from protocol.messages import PROTOCOL, Any_, Hello, Message, Refused, RunExperts, Status, WorkFailed

EXAMPLES = examples()


def frames_of(message: Message) -> list[bytes]:
    return [bytes(frame) for frame in codec.encode(message)]


def header_of(message: Message) -> dict[str, Any]:
    header: dict[str, Any] = msgpack.unpackb(codec.encode(message)[0])
    return header


def decode_with(message: Message, header: object) -> Message:
    """Decode the message's frames under another header."""
    return codec.decode([msgpack.packb(header), *frames_of(message)[1:]])


# --- what is valid arrives ----------------------------------------------------------------------------------------


def test_there_is_an_example_of_every_class() -> None:
    assert {type(message) for message in EXAMPLES} == set(get_args(Any_))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_message_arrives_as_it_was_sent(message: Message) -> None:
    assert same(codec.decode(frames_of(message)), message)


@settings(max_examples=150)
@given(ANY_MESSAGE)
def test_any_message_arrives_as_it_was_sent(message: Message) -> None:
    assert same(codec.decode(frames_of(message)), message)


def test_small_arrays_share_a_frame_and_start_aligned() -> None:
    message = run_experts(rows=1, experts=(0, 1, 2))
    frames = frames_of(message)
    assert len(frames) == 2
    order = ["codes", "scales", "row", "entry_expert", "entry_row", "entry_weight"]
    start = 0
    for name in order:
        start += -start % codec.ALIGNMENT
        raw = getattr(message, name).tobytes()
        assert frames[1][start : start + len(raw)] == raw
        start += len(raw)
    assert len(frames[1]) == start


def test_large_arrays_have_frames_of_their_own_and_are_not_copied() -> None:
    message = run_experts(rows=64, width=2048)
    frames = codec.encode(message)
    assert len(frames) == 3
    assert np.shares_memory(np.frombuffer(frames[2], np.int8), message.codes)
    decoded = codec.decode(frames)
    assert isinstance(decoded, RunExperts)
    assert np.shares_memory(decoded.codes, message.codes)


def test_decoded_arrays_are_aligned_read_only_views() -> None:
    shared = frames_of(run_experts())
    odd = memoryview(bytearray(1 + 40 * 2048 * 8))[1:]  # at an odd address
    wide = sums(rows=40, width=2048, sum48=np.empty((0, 2048, 6), np.uint8), sum64=np.zeros((40, 2048), np.int64))
    header, small, _ = codec.encode(wide)
    for message in (codec.decode(shared), codec.decode([header, small, odd])):
        arrays = [getattr(message, field.name) for field in codec.TABLES[type(message).__name__].arrays]
        assert all(array.flags.aligned for array in arrays)
        assert not any(array.size and array.flags.writeable for array in arrays)
    decoded = codec.decode(shared)
    assert isinstance(decoded, RunExperts)
    assert decoded.codes.base is not None


def test_arrays_that_are_not_contiguous_are_sent_as_they_look() -> None:
    values = np.arange(2 * 2 * 64, dtype=np.float32).reshape(64, 4)[:, ::2].T
    message = run_experts(rows=2, **plain(values))
    assert not values.flags.c_contiguous
    assert same(codec.decode(frames_of(message)), message)


def test_text_that_is_no_unicode_is_escaped_not_refused() -> None:
    message = WorkFailed(session="s", step=0, layer=0, attempt=0, expert=0, reason="file \udcff changed")
    decoded = codec.decode(frames_of(message))
    assert isinstance(decoded, WorkFailed)
    assert decoded.reason == "file \\udcff changed"


# --- another version ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"protocol": PROTOCOL + 1}, {"protocol": -1, "name": 3, "news": [1]}])
def test_of_another_versions_hello_the_version_is_read(fields: dict[str, Any]) -> None:
    decoded = codec.decode([msgpack.packb({"kind": "Hello", "fields": fields, "arrays": [["x", "q9", [1]]]}), b"???"])
    assert isinstance(decoded, Hello)
    assert decoded.protocol == fields["protocol"]
    assert not decoded.name
    assert not decoded.geometry


@pytest.mark.parametrize("protocol", [True, "2", 2.0, 2**63, None])
def test_a_version_that_is_no_number_is_malformed(protocol: object) -> None:
    header = header_of(hello())
    header["fields"]["protocol"] = protocol
    with pytest.raises(ProtocolError):
        decode_with(hello(), header)


# --- what is not valid is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", True),
        ("step", 1.0),
        ("step", "1"),
        ("step", None),
        ("step", 2**63),
        ("step", -1),
        ("session", 1),
        ("session", b"raw"),
        ("session", "x" * (MAX_TEXT_BYTES + 1)),
        ("session", ["s"]),
    ],
)
def test_a_field_of_another_type_is_refused(name: str, value: object) -> None:
    header = header_of(run_experts())
    header["fields"][name] = value
    with pytest.raises(ProtocolError):
        decode_with(run_experts(), header)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1, True])
def test_a_float_is_finite_and_a_float(value: object) -> None:
    header = header_of(submit())
    header["fields"]["top_p"] = value
    with pytest.raises(ProtocolError):
        decode_with(submit(), header)


@pytest.mark.parametrize(
    "value",
    [{"layers": True}, {"layers": 1.0}, {"layers": "1"}, [1], {str(number): number for number in range(MAX_ITEMS + 1)}],
    ids=["bool", "float", "text", "list", "too many"],
)
def test_a_map_of_integers_holds_integers(value: object) -> None:
    header = header_of(hello())
    header["fields"]["geometry"] = value
    with pytest.raises(ProtocolError):
        decode_with(hello(), header)


def test_fields_must_be_exactly_those_of_the_class() -> None:
    for change in ({"more": 1}, {"session": ...}):
        header = header_of(run_experts())
        header["fields"] = {k: v for k, v in {**header["fields"], **change}.items() if v is not ...}
        with pytest.raises(ProtocolError, match="missing or unknown"):
            decode_with(run_experts(), header)


@pytest.mark.parametrize("kind", ["Nothing", "Message", "", 1, None, ["Stop"], "run_experts"])
def test_an_unknown_kind_is_refused(kind: object) -> None:
    with pytest.raises(ProtocolError, match="kind"):
        decode_with(run_experts(), header_of(run_experts()) | {"kind": kind})


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, "scales"),  # the name of another one
        (1, "u1"),
        (1, "<i1"),
        (1, "O"),
        (1, None),
        (2, [1]),
        (2, [1, 64, 1]),
        (2, [64, 1]),
        (2, [1, 63]),
        (2, [1, 96]),
        (2, [-1, -64]),
        (2, [1.0, 64]),
        (2, [True, 64]),
        (2, [2**62, 2**62]),
        (2, "ab"),
    ],
)
def test_an_array_must_be_described_as_the_class_says(at: int, value: object) -> None:
    header = header_of(run_experts())
    header["arrays"][0][at] = value
    with pytest.raises(ProtocolError):
        decode_with(run_experts(), header)


@pytest.mark.parametrize(
    "change",
    [
        lambda frames: frames[:-1],
        lambda frames: [*frames, b""],
        lambda frames: [*frames, b"x"],
        lambda frames: [frames[0], frames[1][:-1], *frames[2:]],
        lambda frames: [frames[0], frames[1] + b"\0", *frames[2:]],
        lambda frames: [*frames[:-1], frames[-1][:-1]],
        lambda frames: [*frames[:-1], frames[-1] + b"\0"],
        lambda frames: [],
        lambda frames: [b""],
        lambda frames: [frames[0] + b"\0", *frames[1:]],
        lambda frames: [*frames, *[b""] * codec.MAX_FRAMES],
    ],
)
@pytest.mark.parametrize("message", [run_experts(), run_experts(rows=64, width=2048), sums(rows=40, width=2048)])
def test_frames_must_be_exactly_the_arrays(change: Any, message: Message) -> None:
    with pytest.raises(ProtocolError):
        codec.decode(change(frames_of(message)))


def test_frames_in_another_order_are_refused() -> None:
    header, small, large = frames_of(run_experts(rows=64, width=2048))
    with pytest.raises(ProtocolError):
        codec.decode([header, large, small])


def test_a_message_without_arrays_has_one_frame() -> None:
    assert len(frames_of(hello())) == 1
    with pytest.raises(ProtocolError):
        codec.decode([*frames_of(hello()), b""])


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_free_map_is_shallow() -> None:
    deepest = Status(report={"x": nested(MAX_DEPTH - 1)})
    assert same(codec.decode(frames_of(deepest)), deepest)
    header = header_of(Status(report={}))
    for depth in (MAX_DEPTH, 400, 5000):
        header["fields"]["report"] = {"x": 0}
        packed = msgpack.packb(header)
        assert packed.count(b"\xa1x\x00") == 1
        deep = packed.replace(b"\xa1x\x00", b"\xa1x" + b"\x91" * depth + b"\x01")
        with pytest.raises(ProtocolError):
            codec.decode([deep])


def test_sizes_are_refused_before_anything_is_allocated() -> None:
    header = header_of(run_experts())
    header["arrays"][0][2] = [1 << 13, 1 << 13]  # 64 MiB, and not there
    claims = [
        [msgpack.packb(header), b""],
        [b"\xdd\xff\xff\xff\xff"],  # a list of 4 billion
        [b"\xdf\xff\xff\xff\xff"],  # a map of as many
        [b"\xdb\xff\xff\xff\xff"],  # a text as long
        [b"\x81" * 100_000],
        [bytes(codec.MAX_HEADER_BYTES + 1)],
    ]
    tracemalloc.start()
    try:
        for frames in claims:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with pytest.raises(ProtocolError):
                codec.decode(frames)
            assert tracemalloc.get_traced_memory()[1] - before < 2 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "changes",
    [
        {"step": np.int64(3)},
        {"step": True},
        {"session": b"s"},
        {"session": "x" * (MAX_TEXT_BYTES + 1)},
        {"entry_weight": np.ones(2, np.float64)},
        {"codes": np.ones((1, 64), np.uint8)},
        {"row": [0]},
        {"row": np.zeros((1, 1), np.int32)},
    ],
)
def test_a_sender_cannot_send_what_would_be_refused(changes: dict[str, Any]) -> None:
    message = run_experts()
    for name, value in changes.items():
        object.__setattr__(message, name, value)
    with pytest.raises(ProtocolError):
        codec.encode(message)


# --- what a message knows about itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
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
        {"attempt": -1},
        {"layer": -1},
    ],
)
def test_run_experts_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        run_experts(rows=2, **changes)


def test_one_row_is_checked_as_strictly() -> None:
    for changes in (
        {"entry_row": np.array([0, 1], np.int32)},
        {"entry_row": np.array([-1, 0], np.int32)},
        {"entry_expert": np.array([2, 2], np.int32)},
        {"entry_expert": np.array([-1, 2], np.int32)},
        {"row": np.array([-1], np.int32)},
    ):
        with pytest.raises(ProtocolError):
            run_experts(**changes)
    with pytest.raises(ProtocolError):
        run_experts(experts=tuple(range(32)))
    with pytest.raises(ProtocolError):
        run_experts(rows=513)


@pytest.mark.parametrize(
    "changes",
    [
        {"single_row": np.array([1, 2], np.int32)},
        {"sum_row": np.array([], np.int32)},
        {"sum_row": np.array([1], np.int32)},
        {"sum64": np.zeros((2, 64), np.int64)},
        {"sum48": np.zeros((2, 64, 5), np.uint8)},
    ],
)
def test_sums_that_contradict_themselves_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        sums(**changes)


@pytest.mark.parametrize("mismatches", [[], [["a", "b"]], [["a", "b", "c"], []]])
def test_a_refusal_has_reasons(mismatches: list[list[str]]) -> None:
    with pytest.raises(ProtocolError):
        Refused(mismatches=mismatches)


@pytest.mark.parametrize("changes", [{"beat_s": 0.0}, {"beat_s": 2.1}, {"beat_s": -1.0}])
def test_a_welcome_is_one_that_can_be_kept(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        welcome(**changes)


def test_a_worker_has_an_expert_or_not() -> None:
    with pytest.raises(ProtocolError, match="able must be 0 or 1 everywhere, found 2"):
        hello(able=np.array([[0, 2]], np.uint8))
