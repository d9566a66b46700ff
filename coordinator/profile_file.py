"""Profiles as files, little-endian:

    8 bytes   MAGIC
    4 bytes   VERSION
    4 bytes   layers
    4 bytes   experts of a layer
    4 bytes   0
    8 bytes   rows seen
    16 bytes  fingerprint of the model, hex digits
    then      layers * experts float64: counts, layer by layer

A file appears whole or not at all. What it says of its size is compared with the size it has before anything is read,
and another model's profile is refused with both values.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from coordinator.new_file import new_file
from coordinator.profile import MAX_EXPERTS, MAX_ROWS_SEEN, MAX_SIDE, Profile
from protocol.errors import ConfigError

MAGIC = b"EXPMPROF"
VERSION = 1

_HEADER = struct.Struct("<8sIIIIQ16s")
_COUNT = np.dtype("<f8")


def read_profile(path: Path, expected: Profile | None = None) -> Profile:
    """The profile at `path`. ConfigError if there is none, or it is not of the model that `expected` is of."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            profile = _read(file)
        if expected is not None and (wrong := profile.mismatch(expected)):
            raise ValueError(wrong)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not a profile that can be used: {error}") from None
    return profile


def encoded(profile: Profile) -> bytes:
    """What a file has of it."""
    layers, experts = profile.counts.shape
    mark = profile.fingerprint.encode("ascii")
    head = _HEADER.pack(MAGIC, VERSION, layers, experts, 0, profile.rows, mark)
    return head + profile.counts.astype(_COUNT).tobytes()


def write_profile(profile: Profile, path: Path, *, option: str, keep: Sequence[Path] = ()) -> None:
    """Write it to `path`, in place of a file that is there. ConfigError, naming `option`, if that cannot be.

    `keep` are files that are not to be replaced.
    """
    with new_file(str(path), keep=keep, option=option) as file:
        file.write(encoded(profile))
        file.flush()
        os.fsync(file.fileno())  # what is put in place of an older one must not turn out to be empty


def _without_waiting(path: str, flags: int) -> int:
    """A pipe, for one, is opened only when somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _read(file: BinaryIO) -> Profile:
    """ValueError says what is wrong with it."""
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("a file is expected")
    head = file.read(_HEADER.size)
    if head[: len(MAGIC)] != MAGIC[: len(head)] or not head:
        raise ValueError(f"it begins with {head[: len(MAGIC)]!r}, expected {MAGIC!r}")
    if len(head) < _HEADER.size:
        raise ValueError(f"{len(head)} bytes, a header of {_HEADER.size} is expected")
    _, version, layers, experts, zero, rows, mark = _HEADER.unpack(head)
    if version != VERSION:
        raise ValueError(f"version {version}, expected {VERSION}")
    if zero:
        raise ValueError(f"{zero} where 0 is expected")
    _check_numbers(layers, experts, rows)
    if not re.fullmatch(rb"[0-9a-f]{16}", mark):
        raise ValueError(f"fingerprint {mark!r}, expected 16 hex digits")
    size = _HEADER.size + layers * experts * _COUNT.itemsize
    if found.st_size != size:
        raise ValueError(f"{found.st_size} bytes, {size} are expected of {layers} layers of {experts} experts")
    content = file.read(size - _HEADER.size)
    if len(content) != size - _HEADER.size:
        raise ValueError(f"{_HEADER.size + len(content)} bytes could be read of {size}")
    return Profile(fingerprint=mark.decode("ascii"), rows=rows, counts=_counts(content, layers, experts))


def _check_numbers(layers: int, experts: int, rows: int) -> None:
    for name, count in (("layers", layers), ("experts", experts)):
        if not 1 <= count <= MAX_SIDE:
            raise ValueError(f"{count} {name}, 1 to {MAX_SIDE} are expected")
    if layers * experts > MAX_EXPERTS:
        raise ValueError(f"{layers} layers of {experts} experts, {MAX_EXPERTS} in all at most are expected")
    if rows > MAX_ROWS_SEEN:
        raise ValueError(f"{rows} rows, {MAX_ROWS_SEEN} at most are expected")


def _counts(content: bytes, layers: int, experts: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    counts = np.frombuffer(content, _COUNT).astype(np.float64).reshape(layers, experts)
    sound = (counts >= 0) & (counts <= float(MAX_ROWS_SEEN))  # NaN is neither
    if not sound.all():
        layer, expert = (int(place) for place in np.argwhere(~sound)[0])
        found = counts[layer, expert]
        raise ValueError(f"layer {layer}, expert {expert} was used {found} times, 0 to {MAX_ROWS_SEEN} are expected")
    return counts
