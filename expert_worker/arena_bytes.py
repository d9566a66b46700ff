"""The mapped bytes of a shared arena: writable for the one who loads them, watched for those who compute from them."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

import numpy as np

import native
from expert_worker.arena_file import ArenaFile
from expert_worker.arena_layout import ArenaLayout
from protocol.messages import U8


class ArenaBytes:
    """A mapping of a whole arena. Views stay valid for as long as anybody holds them, after `close` too.

    Nobody shortens an arena's file while it is used; if a process of the same user did it all the same, who loads would
    be ended by SIGBUS, and another one go on with a file of the wrong size, which is refused. Who computes reads zeros
    instead, and `problem` tells (rule R13).
    """

    def __init__(self, file: ArenaFile, layout: ArenaLayout, *, writable: bool) -> None:
        """OSError if it cannot be mapped. `file` stays open for as long as this is used."""
        self._file = file
        self._layout = layout
        protection = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
        self._map = mmap.mmap(file.descriptor, layout.bytes, prot=protection)
        self._data: U8 | None = np.frombuffer(self._map, np.uint8)
        self._modified_ns = os.fstat(file.descriptor).st_mtime_ns
        # No path: if somebody gives the name to another file, this one keeps its bytes.
        self._watch = None if writable else native.Watch(self._data, file.descriptor, b"", self._modified_ns)

    def unit(self, number: int) -> U8:
        """1-D, from the start of a page. ValueError once closed."""
        if self._data is None:
            raise ValueError(f"{self._file.path} is closed")
        start = self._layout.offsets[number]
        return self._data[start : start + self._layout.units[number][1]]

    def problem(self) -> str | None:
        """What became of the bytes since they were mapped, in a sentence; None if nothing did, or if writable."""
        if self._watch is None or self._watch.intact():
            return None
        return f"shared memory {self._file.path} changed while in use: {self._change(self._watch.fault())}"

    def close(self) -> None:
        """No longer survive changes. May be called again."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._data = None
        with suppress(BufferError):  # views are still held; the mapping is freed with the last of them
            self._map.close()

    def _change(self, fault: int) -> str:
        status = os.fstat(self._file.descriptor)
        if status.st_size != self._layout.bytes:
            return f"its size was {self._layout.bytes} bytes and is {status.st_size} now"
        if fault >= 0:
            return f"its bytes at offset {fault} cannot be read"
        return f"its modification time was {self._modified_ns} ns and is {status.st_mtime_ns} ns now"
