"""How fast this machine reads memory: read_memory.cpp on several threads, over pages of either size or a file."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from paired_figures import in_turn

from protocol.errors import ExpertmeshError

SOURCE = Path(__file__).with_name("read_memory.cpp")
COMPILE_S = 120.0
SMALL, HUGE, FILE = "4 KiB pages", "huge pages", "the mapped model"
WALKS = ((1, 0), (4, 0), (8, 0), (4, 2048))
"""Streams of a thread, and bytes that it asks for ahead: which is fastest depends on the processor."""

Speeds = dict[int, float]
"""By round."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """Something to read."""

    pages: str
    data: NDArray[np.uint8]


class Reader:
    """The compiled program."""

    def __init__(self, library: Path) -> None:
        self._read: Any = ctypes.CDLL(str(library)).read_seconds
        self._read.restype = ctypes.c_double
        self._read.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_size_t]

    def speed(self, memory: Memory, threads: int, walk: tuple[int, int]) -> float:
        """Bytes per second of one pass."""
        data = memory.data
        return len(data) / float(self._read(data.ctypes.data, len(data), threads, *walk))


class Readings:
    """The speeds of all rounds, in bytes per second."""

    def __init__(self) -> None:
        self._speeds: dict[tuple[str, int], dict[tuple[int, int], Speeds]] = {}

    def take(self, number: int, reader: Reader, memory: Memory, threads: int) -> None:
        """Read it once each way, in round `number`."""
        walks = self._speeds.setdefault((memory.pages, threads), {walk: {} for walk in WALKS})
        for walk in in_turn(WALKS, number):
            walks[walk][number] = reader.speed(memory, threads, walk)

    def walk(self, pages: str, threads: int) -> tuple[int, int]:
        """The fastest: that with the best median."""
        walks = self._speeds[pages, threads]
        return max(walks, key=lambda walk: statistics.median(walks[walk].values()))

    def of(self, pages: str, threads: int) -> Speeds:
        """Those of the fastest walk."""
        return self._speeds[pages, threads][self.walk(pages, threads)]

    def limit(self, threads: int) -> Speeds:
        """The fastest of all that was read with so many threads."""
        every = [self.of(*kind) for kind in self.kinds() if kind[1] == threads]
        return {number: max(speeds[number] for speeds in every) for number in set.intersection(*map(set, every))}

    def kinds(self) -> list[tuple[str, int]]:
        """What was read, with how many threads: fewest first."""
        return sorted(self._speeds, key=lambda kind: (kind[1], kind[0]))


@contextmanager
def reader() -> Iterator[Reader]:
    """Compile it for this machine. ExpertmeshError if there is no compiler, or it fails."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise ExpertmeshError("no C++ compiler is found, c++ or one that CXX names is expected")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "read_memory.so"
        options = ["-O3", "-march=native", "-std=c++20", "-shared", "-fPIC", "-pthread", "-o", str(library)]
        done = subprocess.run([compiler, *options, str(SOURCE)], capture_output=True, text=True, timeout=COMPILE_S)
        if done.returncode != 0:
            reason = next(
                (line for line in done.stderr.splitlines() if "error" in line), f"exit code {done.returncode}"
            )
            raise ExpertmeshError(f"{compiler} cannot compile {SOURCE.name}: {reason}")
        yield Reader(library)


def own_memory(count: int, pages: str) -> Memory:
    """`count` bytes of this process, written once, in pages of that size as far as the system grants it."""
    area = mmap.mmap(-1, count)
    area.madvise(mmap.MADV_HUGEPAGE if pages == HUGE else mmap.MADV_NOHUGEPAGE)
    data = np.frombuffer(area, np.uint8)
    data.fill(1)
    return Memory(pages=pages, data=data)


def mapped_file(path: Path, most: int) -> Memory:
    """The first `most` bytes of a file, mapped and read once."""
    with path.open("rb") as file:
        data = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)[:most]
    data[::4096].max()
    return Memory(pages=FILE, data=data)
