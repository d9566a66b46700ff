"""Frames in, messages out; and nothing but ProtocolError for frames that are none."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any, get_args

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from message_examples import ANY_MESSAGE, KEY, examples, hello, run_experts, same, stage_exchange, submit, sums, welcome

from protocol import codec
from protocol.errors import ProtocolError
from protocol.fields import MAX_DEPTH, MAX_ITEMS, MAX_TEXT_BYTES
from protocol.messages import (
    NO_RANK,
    PROTOCOL,
    Any_,
    Assign,
    Hello,
    Holders,
    Message,
    OfferPieces,
    Refused,
    Status,
    Submit,
    WorkFailed,
)

EXAMPLES = examples()
ASSIGN = Assign(placement=1, in_force=0, held=np.eye(3, dtype=np.uint8), rank=NO_RANK)
LONG = submit(prompt_ids=np.arange(codec.LARGE_ARRAY_BYTES // 4, dtype=np.int32))


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


def test_a_large_array_has_a_frame_of_its_own_and_is_not_copied() -> None:
    message = submit(prompt_ids=np.arange(codec.LARGE_ARRAY_BYTES // 4, dtype=np.int32))
    header, large = codec.encode(message)
    assert np.shares_memory(np.frombuffer(large, np.int32), message.prompt_ids)
    decoded = codec.decode([header, large])
    assert isinstance(decoded, Submit)
    assert np.shares_memory(decoded.prompt_ids, message.prompt_ids)


def test_decoded_arrays_are_aligned_read_only_views() -> None:
    header, ids = frames_of(submit())
    odd = memoryview(bytearray(1 + len(ids)))[1:]  # at an odd address
    for frame in (ids, odd):
        decoded = codec.decode([header, frame])
        assert isinstance(decoded, Submit)
        assert decoded.prompt_ids.flags.aligned
        assert not decoded.prompt_ids.flags.writeable


def test_arrays_that_are_not_contiguous_are_sent_as_they_look() -> None:
    held = np.eye(8, dtype=np.uint8)[:, ::2].T
    message = Assign(placement=1, in_force=0, held=held, rank=NO_RANK)
    assert not held.flags.c_contiguous
    assert same(codec.decode(frames_of(message)), message)


def test_text_that_is_no_unicode_is_escaped_not_refused() -> None:
    message = WorkFailed(session="s", step=0, layer=0, attempt=0, expert=0, reason="file \udcff changed")
    decoded = codec.decode(frames_of(message))
    assert isinstance(decoded, WorkFailed)
    assert decoded.reason == "file \\udcff changed"


# --- ranks ----------------------------------------------------------------------------------------------------------


RANK = np.array([[4, 0, 1], [5, 3, 2]], np.int32)
HELD = np.ones((2, 3), np.uint8)


def test_a_rank_travels_beside_what_is_held() -> None:
    message = Assign(placement=1, in_force=0, held=HELD, rank=RANK)
    decoded = codec.decode(frames_of(message))
    assert isinstance(decoded, Assign)
    np.testing.assert_array_equal(decoded.rank, RANK)


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        (RANK[:, :2], r"rank must be \(2, 3\) \(layers, experts\) as held is, or \(0, 0\), found \(2, 2\)"),
        (RANK.T, r"rank must be \(2, 3\) .* found \(3, 2\)"),
        (RANK - 1, r"rank must lie in 0\.\.5, found -1\.\.4"),
        (RANK + 1, r"rank must lie in 0\.\.5, found 1\.\.6"),
        (np.full((2, 3), 2**31 - 1, np.int32), r"rank must lie in 0\.\.5, found 2147483647\.\.2147483647"),
        (np.zeros((2, 3), np.int32), "rank must have each number once, found 0 6 times"),
        (np.array([[4, 0, 1], [5, 3, 3]], np.int32), "rank must have each number once, found 3 2 times"),
    ],
)
def test_what_is_no_ranking_is_refused(rank: Any, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        Assign(placement=1, in_force=0, held=HELD, rank=rank)


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["x", KEY[1:], f"{KEY}a", f"{KEY[1:]}\n", "#" * 40, "\N{BRAIN}" * 40, "x" * 60_000])
def test_what_is_no_public_key_is_refused_before_anybody_dials_with_it(key: str) -> None:
    said = "a public key of 40 characters of Z85 is expected, or none, found"
    for message in (example for example in EXAMPLES if isinstance(example, OfferPieces | Holders)):
        header = header_of(message)
        if isinstance(message, Holders):
            header["fields"]["keys"][0] = key
        else:
            header["fields"]["key"] = key
        with pytest.raises(ProtocolError, match=said) as refused:
            decode_with(message, header)
        assert len(str(refused.value)) < 300


def test_each_holder_has_a_key_or_an_empty_one() -> None:
    with pytest.raises(ProtocolError, match="2 endpoints, with 1 keys and 2 sets of experts"):
        Holders(endpoints=["ipc://@a", "ipc://@b"], keys=[KEY], have=np.ones((2, 3, 4), np.uint8))


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
        ("seed", True),
        ("seed", 1.0),
        ("seed", "1"),
        ("seed", None),
        ("seed", 2**63),
        ("request", 1),
        ("request", b"raw"),
        ("request", "x" * (MAX_TEXT_BYTES + 1)),
        ("request", ["s"]),
    ],
)
def test_a_field_of_another_type_is_refused(name: str, value: object) -> None:
    header = header_of(submit())
    header["fields"][name] = value
    with pytest.raises(ProtocolError):
        decode_with(submit(), header)


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
    for change in ({"more": 1}, {"request": ...}):
        header = header_of(submit())
        header["fields"] = {k: v for k, v in {**header["fields"], **change}.items() if v is not ...}
        with pytest.raises(ProtocolError, match="missing or unknown"):
            decode_with(submit(), header)


@pytest.mark.parametrize("kind", ["Nothing", "Message", "", 1, None, ["Stop"], "submit", "RunExperts", "Sums"])
def test_an_unknown_kind_is_refused(kind: object) -> None:
    with pytest.raises(ProtocolError, match="kind"):
        decode_with(submit(), header_of(submit()) | {"kind": kind})


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, "placement"),  # the name of another one
        (1, "i1"),
        (1, "<u1"),
        (1, "O"),
        (1, None),
        (2, [3]),
        (2, [3, 3, 1]),
        (2, [1, 3]),
        (2, [3, 4]),
        (2, [-3, -3]),
        (2, [3.0, 3]),
        (2, [True, 9]),
        (2, [2**62, 2**62]),
        (2, "ab"),
    ],
)
def test_an_array_must_be_described_as_the_class_says(at: int, value: object) -> None:
    header = header_of(ASSIGN)
    header["arrays"][0][at] = value
    with pytest.raises(ProtocolError):
        decode_with(ASSIGN, header)


@pytest.mark.parametrize(
    "change",
    [
        lambda frames: frames[:-1],
        lambda frames: [*frames, b""],
        lambda frames: [*frames, b"x"],
        lambda frames: [*frames[:-1], frames[-1][:-1]],
        lambda frames: [*frames[:-1], frames[-1] + b"\0"],
        lambda frames: [],
        lambda frames: [b""],
        lambda frames: [frames[0] + b"\0", *frames[1:]],
        lambda frames: [*frames, *[b""] * codec.MAX_FRAMES],
    ],
)
@pytest.mark.parametrize(
    "message", [ASSIGN, LONG, run_experts(), run_experts(rows=64, width=2048), sums(rows=40, width=2048)]
)
def test_frames_must_be_exactly_the_arrays(change: Any, message: Message) -> None:
    with pytest.raises(ProtocolError):
        codec.decode(change(frames_of(message)))


def test_frames_in_another_order_are_refused() -> None:
    header, large = frames_of(LONG)
    with pytest.raises(ProtocolError):
        codec.decode([large, header])


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
    header = header_of(ASSIGN)
    header["arrays"][0][2] = [1 << 13, 1 << 13]  # 64 MiB, and not there
    call = bytearray(frames_of(run_experts())[0])
    call[40:52] = struct.pack("<3I", 512, 15872, 1 << 20)  # rows, entries, columns
    claims = [
        [bytes(call)],
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


@pytest.mark.parametrize("mismatches", [[], [["a", "b"]], [["a", "b", "c"], []]])
def test_a_refusal_has_reasons(mismatches: list[list[str]]) -> None:
    with pytest.raises(ProtocolError):
        Refused(mismatches=mismatches)


@pytest.mark.parametrize("changes", [{"beat_s": 0.0}, {"beat_s": 2.1}, {"beat_s": -1.0}])
def test_a_welcome_is_one_that_can_be_kept(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        welcome(**changes)


@pytest.mark.parametrize("within_s", [0.0, -1.0, 60.1, float("inf")])
def test_an_exchange_is_staged_for_a_time(within_s: float) -> None:
    with pytest.raises(ProtocolError, match=r"within_s must be above 0 and 60\.0 at most"):
        stage_exchange(within_s=within_s)


def test_a_worker_has_an_expert_or_not() -> None:
    with pytest.raises(ProtocolError, match="able must be 0 or 1 everywhere, found 2"):
        hello(able=np.array([[0, 2]], np.uint8))
