"""Whatever the frames hold: a message or a ProtocolError, never anything else."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from message_examples import PLAIN, examples
from step_frames_twin import lay_out

from protocol import codec
from protocol.errors import ProtocolError
from protocol.messages import Hello, Message, RunExperts, Sums
from protocol.step_frames import RUN_EXPERTS, SUMS

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
    message = data.draw(st.sampled_from([one for one in EXAMPLES if not isinstance(one, RunExperts | Sums)]))
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


@settings(max_examples=400)
@given(st.data())
def test_hostile_step_arrays(data: st.DataObject) -> None:
    """Well laid out, but the numbers are arbitrary: only native checks stand between them and the kernels."""

    def array(dtype: str, *shape: int) -> Any:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)

    rows, entries, width = (data.draw(st.integers(0, 3)) for _ in range(3))
    numbers = [data.draw(st.integers(-1, 2**63 - 1)) for _ in range(5)]
    if data.draw(st.booleans()):
        quantised = data.draw(st.booleans())
        arrays = [array("i1", rows, width), array("<f4", rows, width // 32)] if quantised else []
        arrays += [] if quantised else [array("<f4", rows, width)]
        arrays += [array("<i4", rows), array("<i4", entries), array("<i4", entries), array("<f4", entries)]
        frames = lay_out(RUN_EXPERTS, "s", numbers[:4], [rows, entries, width, int(quantised)], arrays)
    else:
        size = data.draw(st.sampled_from([6, 8, 7, 0]))
        arrays = [array("<i4", rows), array("<f4", rows, width), array("<i4", entries), array("u1", entries, 3, size)]
        frames = lay_out(SUMS, "s", numbers, [rows, width, entries, 3, size], arrays)
    decode_or_refuse(frames)
