"""Whatever the frames hold: a message or a ProtocolError, never anything else."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from message_examples import PLAIN, examples

from protocol import codec
from protocol.errors import ProtocolError
from protocol.messages import Hello, Message, RunExperts, Sums

EXAMPLES = examples()


def frames_of(message: Message) -> list[bytes]:
    return [bytes(frame) for frame in codec.encode(message)]


def header_of(message: Message) -> dict[str, Any]:
    header: dict[str, Any] = msgpack.unpackb(codec.encode(message)[0])
    return header


def decode_or_refuse(frames: list[bytes]) -> None:
    try:
        message = codec.decode(frames)
    except ProtocolError:
        return
    if isinstance(message, Hello):  # another version's keeps nothing but the version
        return
    again = frames_of(message)  # frames, for a report may hold NaN, which equals nothing
    assert frames_of(codec.decode(again)) == again


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=64), max_size=codec.MAX_FRAMES + 2))
def test_random_frames(frames: list[bytes]) -> None:
    decode_or_refuse(frames)


@settings(max_examples=300)
@given(st.data())
def test_damaged_frames(data: st.DataObject) -> None:
    frames = frames_of(data.draw(st.sampled_from(EXAMPLES)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(frames) - 1))
        frame = bytearray(frames[at])
        place = data.draw(st.integers(0, len(frame)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "copy", "lose", "extend"])):
            case "flip" if place < len(frame):
                frame[place] ^= data.draw(st.integers(1, 255))
            case "cut":
                del frame[place:]
            case "insert":
                frame[place:place] = data.draw(st.binary(min_size=1, max_size=9))
            case "extend":
                frame += data.draw(st.binary(min_size=1, max_size=9))
            case "copy":
                frames.insert(at, bytes(frame))
            case "lose" if len(frames) > 1:
                del frames[at]
                continue
        frames[at] = bytes(frame)
    decode_or_refuse(frames)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) within a header."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
            found += [(value, key), *_places(inner)]
    return found


WIRE_VALUES = PLAIN | st.binary(max_size=8) | st.lists(st.integers(-1, 2**64 - 1), max_size=3) | st.just(float("nan"))


@settings(max_examples=400)
@given(st.data())
def test_changed_headers(data: st.DataObject) -> None:
    message = data.draw(st.sampled_from(EXAMPLES))
    header = header_of(message)
    for _ in range(data.draw(st.integers(1, 3))):
        places = _places(header)
        container, key = places[data.draw(st.integers(0, len(places) - 1))]
        if data.draw(st.booleans()):
            container[key] = data.draw(WIRE_VALUES)
        elif isinstance(container, dict):
            container[data.draw(st.text(max_size=5))] = container.pop(key)
        else:
            del container[key]
        if not _places(header):
            break
    try:
        packed = msgpack.packb(header)
    except OverflowError:
        return
    decode_or_refuse([packed, *frames_of(message)[1:]])


@settings(max_examples=300)
@given(st.data())
def test_hostile_arrays_of_the_right_type(data: st.DataObject) -> None:
    """Valid frames whose numbers are arbitrary: only __post_init__ stands between them and the kernels."""
    cls = data.draw(st.sampled_from([RunExperts, Sums]))
    message = next(example for example in EXAMPLES if isinstance(example, cls))
    header, tail = header_of(message), [b""]
    for place, field in enumerate(codec.TABLES[cls.__name__].arrays):
        shape = data.draw(st.lists(st.integers(0, 3), min_size=field.dimensions, max_size=field.dimensions))
        size = int(np.prod(shape)) * field.dtype.itemsize
        header["arrays"][place][2] = shape
        if size:
            tail[0] += bytes(-len(tail[0]) % codec.ALIGNMENT) + data.draw(st.binary(min_size=size, max_size=size))
    decode_or_refuse([msgpack.packb(header), *(tail if tail[0] else [])])
