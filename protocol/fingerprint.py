"""A short name for a model's bytes, the same on every host, compared in the first message between processes.

It covers the layout completely and each file by name, size and three samples: cheap enough for every start, and
other weights behind the same layout are noticed. A change outside of the samples is not.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

from protocol.layout import ExpertLayout
from protocol.mapped import MappedFile
from protocol.shards import ModelFiles

DOMAIN = "expertmesh model 1"
"""Changes whenever the same file would get another fingerprint."""

SAMPLE_BYTES = 64 << 10


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


def fingerprint(files: ModelFiles, layout: ExpertLayout) -> str:
    """16 hex digits. Reads 192 KiB of each file; ModelError if that fails.

    Integers are hashed as 8 bytes little-endian, strings as their length and UTF-8.
    """
    state = blake2b(digest_size=8)
    _text(state, DOMAIN)
    _layout(state, layout)
    for each in files.files:
        _file(state, each.file)
    return state.hexdigest()


def samples_of(size: int) -> tuple[tuple[int, int], ...]:
    """Offset and bytes of what is looked at of a file of that size."""
    count = min(SAMPLE_BYTES, size)
    return tuple((offset, count) for offset in (0, (size - count) // 2, size - count))


def _layout(state: _Hash, layout: ExpertLayout) -> None:
    _numbers(state, len(layout.layers), layout.experts, layout.width, layout.expert_width, layout.largest_blob)
    for role in layout.role_tensors():
        _text(state, role.tensor)
        _text(state, role.file)
        _numbers(state, role.offset, role.expert_bytes, role.type, role.rows, role.columns)


def _file(state: _Hash, file: MappedFile) -> None:
    _text(state, file.path.name)
    _numbers(state, file.size)
    for offset, count in samples_of(file.size):
        _numbers(state, offset, count)
        state.update(file.read(offset, count))


def _text(state: _Hash, text: str) -> None:
    content = text.encode("utf-8", "surrogateescape")
    _numbers(state, len(content))
    state.update(content)


def _numbers(state: _Hash, *numbers: int) -> None:
    for number in numbers:
        state.update(number.to_bytes(8, "little"))
