"""Messages to frames and back; docs/protocol.md tells the format and the order of the checks.

Nothing is allocated for a message before its size is known to fit, and decoded arrays are read-only views of the frames
they came in.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from protocol import step_frames
from protocol.errors import ProtocolError
from protocol.fields import MAX_ITEMS, MAX_TEXT_BYTES, TABLES, ArrayField, Table
from protocol.messages import ALL_EXPERTS, NO_EXPERTS, PROTOCOL, Hello, Message, RunExperts, Sums
from protocol.step_frames import LARGE_ARRAY_BYTES, MAGIC, Frame

__all__ = [
    "ALIGNMENT",
    "LARGE_ARRAY_BYTES",
    "MAGIC",
    "MAX_FRAMES",
    "MAX_FRAME_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_TEXT_BYTES",
    "TABLES",
    "decode",
    "encode",
]

MAX_FRAME_BYTES = 64 << 20
"""Of any frame."""
MAX_HEADER_BYTES = 1 << 20
ALIGNMENT = 8
"""Arrays in the shared frame start at multiples of this."""
MAX_FRAMES = 2 + max(len(table.arrays) for table in TABLES.values())
"""Header, shared frame, and every array on its own."""

_STEP = (RunExperts, Sums)
_HEADER_KEYS = {"kind", "fields", "arrays"}
_PADDING = tuple(bytes(-size % ALIGNMENT) for size in range(ALIGNMENT))


def encode(message: Message) -> list[Frame]:
    """The frames of a message, header first. Large arrays are not copied: nobody may write to them until they are sent.

    ProtocolError if a field does not hold what its class says, which is a mistake of the caller.
    """
    if isinstance(message, _STEP):
        return _encode_step(message)
    table = TABLES[type(message).__name__]
    fields = {name: getattr(message, name) for name in table.plain}
    for name, value in fields.items():
        table.check(name, value)
    described: list[tuple[str, str, tuple[int, ...]]] = []
    shared: list[bytes] = []
    own: list[Frame] = []
    for field in table.arrays:
        array = getattr(message, field.name)
        _check_array(table, field, array)
        described.append((field.name, field.code, array.shape))
        if array.nbytes >= LARGE_ARRAY_BYTES:
            own.append(np.ascontiguousarray(array).data.cast("B"))
        elif array.nbytes:
            shared.append(array.tobytes())
            shared.append(_PADDING[array.nbytes % ALIGNMENT])
    frames: list[Frame] = [_pack({"kind": table.kind, "fields": fields, "arrays": described})]
    if shared:
        frames.append(b"".join(shared[:-1]))  # no padding behind the last one
    return frames + own


def decode(frames: Sequence[Frame]) -> Message:
    """The message in these frames. ProtocolError, and nothing else, for whatever is not exactly one."""
    if not 1 <= len(frames) <= MAX_FRAMES:
        raise ProtocolError(f"1 to {MAX_FRAMES} frames expected, found {len(frames)}")
    first = frames[0]
    if len(first) and first[0] == MAGIC:
        try:
            return step_frames.decode(frames)
        except ValueError as error:
            raise ProtocolError(f"a step message: {error}") from None
    header = _unpack(first)
    table = TABLES.get(header["kind"]) if isinstance(header["kind"], str) else None
    if table is None or table.cls in (RunExperts, Sums):  # which have frames of their own
        raise ProtocolError(f"unknown kind {reprlib.repr(header['kind'])}")
    fields = header["fields"]
    if type(fields) is not dict:
        raise ProtocolError(f"{table.kind}: fields expected as a map")
    if table.cls is Hello and _is_foreign(fields.get("protocol")):
        return _foreign_hello(fields["protocol"])
    if fields.keys() != table.plain.keys():
        wrong = reprlib.repr(fields.keys() ^ table.plain.keys())
        raise ProtocolError(f"{table.kind}: fields missing or unknown: {wrong}")
    for name, value in fields.items():
        table.check(name, value)
    return table.cls(**fields, **_arrays(table, header["arrays"], frames))


def _encode_step(message: RunExperts | Sums) -> list[Frame]:
    try:
        return step_frames.encode(message)
    except TypeError:
        sound = _contiguous(message)
    except ValueError as error:
        raise ProtocolError(f"{type(message).__name__}: {error}") from None
    try:
        return step_frames.encode(sound)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"{type(message).__name__}: {error}") from None


def _contiguous(message: RunExperts | Sums) -> RunExperts | Sums:
    """The same with its arrays in C order; ProtocolError naming the field that cannot be sent."""
    table = TABLES[type(message).__name__]
    for name in table.plain:
        table.check(name, getattr(message, name))
    arrays = {field.name: getattr(message, field.name) for field in table.arrays}
    for field in table.arrays:
        _check_array(table, field, arrays[field.name])
    changes: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return replace(message, **changes)


def _pack(header: dict[str, Any]) -> bytes:
    try:
        packed: bytes = msgpack.packb(header)
    except UnicodeEncodeError:  # file names may hold bytes that are no text; reasons name files
        packed = msgpack.packb(header, unicode_errors="backslashreplace")
    if len(packed) > MAX_HEADER_BYTES:
        raise ProtocolError(f"{header['kind']}: a header of {len(packed)} bytes, {MAX_HEADER_BYTES} at most expected")
    return packed


def _unpack(frame: Frame) -> dict[str, Any]:
    if len(frame) > MAX_HEADER_BYTES:
        raise ProtocolError(f"a header of {len(frame)} bytes, {MAX_HEADER_BYTES} at most expected")
    try:
        header = msgpack.unpackb(
            frame,
            max_str_len=MAX_TEXT_BYTES,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_bin_len=0,
            max_ext_len=0,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(f"the header is no msgpack of ours: {error}") from None
    if type(header) is not dict or header.keys() != _HEADER_KEYS:
        raise ProtocolError(f"a header is a map with the keys {sorted(_HEADER_KEYS)}")
    return header


def _is_foreign(protocol: object) -> bool:
    return type(protocol) is int and protocol != PROTOCOL and -(2**63) <= protocol < 2**63


def _foreign_hello(protocol: int) -> Hello:
    """Another version's Hello, of which we can know only the version: enough to refuse it in words."""
    return Hello(
        protocol=protocol,
        role="",
        name="",
        incarnation="",
        pid=0,
        host="",
        fingerprint="",
        geometry={},
        isa="",
        threads=0,
        entry_ns=0,
        room=0,
        memory=-1,
        pages="",
        able=ALL_EXPERTS,
        held=NO_EXPERTS,
    )


def _check_array(table: Table, field: ArrayField, array: object) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != field.dtype or array.ndim != field.dimensions:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        expected = f"{field.dtype} of {field.dimensions} dimensions"
        raise ProtocolError(f"{table.kind}.{field.name}: {expected} expected, found {found}")
    if array.nbytes > MAX_FRAME_BYTES:
        raise ProtocolError(f"{table.kind}.{field.name}: {array.nbytes} bytes, {MAX_FRAME_BYTES} at most expected")


def _arrays(table: Table, described: object, frames: Sequence[Frame]) -> dict[str, NDArray[Any]]:
    """Views of `frames`, which must hold exactly the arrays described."""
    if type(described) is not list or len(described) != len(table.arrays):
        raise ProtocolError(f"{table.kind}: {len(table.arrays)} arrays expected")
    arrays: dict[str, NDArray[Any]] = {}
    shared = frames[1] if len(frames) > 1 else b""
    end = 0
    large: list[tuple[ArrayField, list[int], int]] = []
    for field, description in zip(table.arrays, described, strict=True):
        shape, size = _shape(table, field, description)
        if size >= LARGE_ARRAY_BYTES:
            large.append((field, shape, size))
        elif size:
            start = end + -end % ALIGNMENT
            end = start + size
            if end > len(shared):
                raise ProtocolError(f"{table.kind}.{field.name}: its frame ends before byte {end}")
            arrays[field.name] = _view(shared, field, shape, size, start)
        else:
            arrays[field.name] = np.empty(shape, field.dtype)
    own = frames[2 if end else 1 :]
    if [len(frame) for frame in own] != [size for _, _, size in large] or (end and len(shared) != end):
        found = [len(frame) for frame in frames[1:]]
        raise ProtocolError(f"{table.kind}: frames of {found} bytes are not exactly its arrays")
    for (field, shape, size), frame in zip(large, own, strict=True):
        arrays[field.name] = _view(frame, field, shape, size, 0)
    return arrays


def _shape(table: Table, field: ArrayField, description: object) -> tuple[list[int], int]:
    """The shape that a header states for this field, and its bytes."""
    if type(description) is not list or len(description) != 3:
        raise ProtocolError(f"{table.kind}.{field.name}: name, dtype and shape expected")
    name, code, shape = description
    if name != field.name or code != field.code:
        found = f"{reprlib.repr(name)} of {reprlib.repr(code)}"
        raise ProtocolError(f"{table.kind}.{field.name}: {field.code} expected here, found {found}")
    if type(shape) is not list or len(shape) != field.dimensions:
        raise ProtocolError(f"{table.kind}.{field.name}: {field.dimensions} dimensions expected")
    size = field.dtype.itemsize
    for extent in shape:
        if type(extent) is not int or not 0 <= extent <= MAX_FRAME_BYTES:
            raise ProtocolError(f"{table.kind}.{field.name}: {reprlib.repr(extent)} is no extent")
        size *= extent
    if size > MAX_FRAME_BYTES:
        raise ProtocolError(f"{table.kind}.{field.name}: {size} bytes, {MAX_FRAME_BYTES} at most expected")
    return shape, size


def _view(frame: Frame, field: ArrayField, shape: list[int], size: int, start: int) -> NDArray[Any]:
    array: NDArray[Any] = np.frombuffer(frame, field.dtype, size // field.dtype.itemsize, start)
    if type(frame) is not bytes:  # which are aligned and never writable
        array = array if array.flags.aligned else array.copy()
        array.flags.writeable = False
    return array if field.dimensions == 1 else array.reshape(shape)
