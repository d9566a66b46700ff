"""Frames that are no message, and sound messages that nobody asked for."""

from __future__ import annotations

import random

from message_examples import examples

from protocol.codec import decode, encode
from protocol.errors import ProtocolError


def garbage(chance: random.Random) -> list[bytes]:
    """Frames of no message: noise, or a message with one thing wrong."""
    while True:
        frames = _spoilt([bytes(frame) for frame in encode(chance.choice(examples()))], chance)
        try:
            decode(frames)
        except ProtocolError:
            return frames


def _spoilt(frames: list[bytes], chance: random.Random) -> list[bytes]:
    header, *arrays = frames
    match chance.randrange(6):
        case 0:
            return [chance.randbytes(chance.randrange(1, 200)) for _ in range(chance.randrange(1, 5))]
        case 1:
            return [header[: chance.randrange(len(header))], *arrays]
        case 2:
            return [*frames, b""]
        case 3:
            return [b""] * chance.randrange(1, 80)
        case 4:
            at = chance.randrange(len(header))
            return [header[:at] + chance.randbytes(1) + header[at + 1 :], *arrays]
        case _:
            return [header + chance.randbytes(3), *arrays]


def misdirected() -> list[list[bytes]]:
    """Sound messages that nobody asked this sender for; it has not said Hello."""
    return [[bytes(frame) for frame in encode(message)] for message in examples()]
