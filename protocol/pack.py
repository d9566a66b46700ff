"""What a pack says of itself: a GGUF file whose quantised matrices lie as the kernels read them (docs/packs.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ModelError
from protocol.gguf_header import shorten
from protocol.gguf_metadata import Metadata
from protocol.quant_types import RUNNABLE

VERSION = 1
"""Of the format. Any other is refused: its bytes may mean anything."""

PREFIX = "expertmesh.pack."
"""What the keys of a pack begin with."""

VERSION_KEY, FINGERPRINT_KEY, SOURCE_KEY, SHARE_KEY, SHARES_KEY, EXPERTS_KEY, DIGESTS_KEY = (
    f"{PREFIX}{name}" for name in ("version", "fingerprint", "source", "share", "shares", "experts", "digests")
)

PACKED_TYPE = 1000
"""A packed tensor's type in the file is that of its weights and this: other programs refuse it by its number."""

PACKABLE = frozenset(kind for kind in RUNNABLE if not kind.is_float)
"""Types of matrices that are packed; the others lie as in any GGUF file."""

GROUP_ROWS = 16
"""Rows that are interleaved; those after the last whole group lie as in any GGUF file."""

ALIGNMENT = 64
"""Of a pack's tensors, in bytes."""

PACK_ENDING = ".packed.gguf"
"""Of the names that packs are given: beside a model, they are no other one."""

DIGEST_BYTES = 32
"""Of SHA-256, which current processors compute faster than they read from most disks."""
MAX_SHARES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One worker's part of a model's experts."""

    number: int
    """From 1."""
    count: int

    def __str__(self) -> str:
        return f"share {self.number} of {self.count}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pack:
    """The keys of a pack, checked."""

    fingerprint: str
    """Of the model that it was made of, and so its own."""
    source: str
    """That model's first file, without its folder."""
    share: Share | None
    """None if everything is there. A share has experts alone, and not all of them."""
    experts: NDArray[np.bool_] | None
    """(layers * experts,): True for those of a share that are there; None if all are."""
    digests: NDArray[np.uint8]
    """(1 + tensors, DIGEST_BYTES): the header's, taken with zeros in its own place, then the tensors', in the header's
    order: of the bytes that are there."""

    @classmethod
    def of(cls, metadata: Metadata, tensors: int) -> Self | None:
        """None if these are not the keys of a pack. ModelError for another version, or keys that cannot be."""
        if VERSION_KEY not in metadata:
            return None
        if (version := metadata.integer(VERSION_KEY)) != VERSION:
            raise ModelError(
                f"{metadata.path}: a pack of version {version}, and this program reads version {VERSION}: "
                "make it again from the model, with `expertmesh model pack`"
            )
        share, experts = _share(metadata)
        return cls(
            fingerprint=_fingerprint(metadata),
            source=metadata.text(SOURCE_KEY),
            share=share,
            experts=experts,
            digests=_digests(metadata, tensors),
        )

    def held(self, layer: int, experts: int) -> NDArray[np.bool_]:
        """(experts,): True for those of a layer that are there. None are, beyond the layers that the pack speaks of."""
        if self.experts is None:
            return np.ones(experts, np.bool_)
        row = self.experts[layer * experts : (layer + 1) * experts]
        return row if len(row) == experts else np.zeros(experts, np.bool_)


def _fingerprint(metadata: Metadata) -> str:
    found = metadata.text(FINGERPRINT_KEY)
    if not re.fullmatch("[0-9a-f]{16}", found):
        raise ModelError(f"{metadata.path}: {FINGERPRINT_KEY!r} is {shorten(found)}, expected 16 hex digits")
    return found


def _share(metadata: Metadata) -> tuple[Share | None, NDArray[np.bool_] | None]:
    if EXPERTS_KEY not in metadata:
        return None, None
    share = Share(number=metadata.integer(SHARE_KEY), count=metadata.integer(SHARES_KEY))
    if not 1 <= share.number <= share.count <= MAX_SHARES:
        raise ModelError(
            f"{metadata.path}: {SHARE_KEY!r} is {share.number} of {share.count}, expected 1 to {MAX_SHARES}"
        )
    return share, _array(metadata, EXPERTS_KEY, np.bool_)


def _digests(metadata: Metadata, tensors: int) -> NDArray[np.uint8]:
    found = _array(metadata, DIGESTS_KEY, np.uint8)
    if len(found) != (1 + tensors) * DIGEST_BYTES:
        raise ModelError(
            f"{metadata.path}: {DIGESTS_KEY!r} has {len(found)} bytes, expected {(1 + tensors) * DIGEST_BYTES}: "
            f"{DIGEST_BYTES} for the header and for each of {tensors} tensors"
        )
    return found.reshape(-1, DIGEST_BYTES)


def _array(metadata: Metadata, key: str, dtype: type[np.generic]) -> NDArray[Any]:
    found = metadata.get(key)
    if not isinstance(found, np.ndarray) or found.dtype != dtype:
        raise ModelError(f"{metadata.path}: key {key!r} is missing, or no array of {np.dtype(dtype).name}")
    return found
