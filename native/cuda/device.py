"""What a device offers: memory, copies and launches. `gpu` has the real one."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

MAX_DEVICES = 64
THREADS = 256
"""Of a block, where nothing else is said."""
NO_FAULT = 2**31 - 1
"""In an int32 on the device that kernels lower to the number of a bad row or entry."""


class DeviceError(RuntimeError):
    """There is no such device, it cannot be used, or its memory is full; the text names what was found and expected."""


class Array(Protocol):
    """Numbers in a device's memory, one after the other (C order), beginning at a multiple of 16 bytes."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def nbytes(self) -> int: ...
    def __getitem__(self, part: slice) -> Self:
        """A view along the first axis."""

    def reshape(self, *shape: int) -> Self:
        """The same memory in another shape."""

    def view(self, dtype: DTypeLike) -> Self:
        """The same memory as other numbers."""


Argument: TypeAlias = "Array | np.generic | None"
"""Of a kernel: an array (its address), a number of exactly the kernel's type, or None for a null pointer."""


Work: TypeAlias = Callable[[], None]
"""Launches something."""
Recording: TypeAlias = Callable[[Work], None]
"""Launches what was recorded, in place of the work that it is called with."""


class Device(Protocol):
    """One device. Work is done in the order in which it was asked for."""

    name: str
    """What users call it: "cuda:0"."""
    description: str
    """For people: what it is and how much memory it has."""

    def use(self) -> None:
        """To be called once in every thread that uses the device, before anything else."""

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Memory, not initialised; it is given back when nobody refers to it. DeviceError if there is no room."""

    def upload(self, host: NDArray[Any], to: Array) -> None:
        """Copy an array of the same shape and dtype; `host` may be changed when this returns."""

    def download(self, array: Array) -> NDArray[Any]:
        """A copy, after everything that was asked for before."""

    def zero(self, array: Array) -> None:
        """Set every byte to 0."""

    def finish(self) -> None:
        """Wait for everything that was asked for."""

    def memory(self) -> tuple[int, int]:
        """Bytes: free, and in all."""

    def address(self, array: Array) -> int:
        """Where it begins, for tables of addresses."""

    def launch(self, kernel: str, blocks: tuple[int, int, int], threads: int, *arguments: Argument) -> None:
        """Run a kernel of native/cuda by its name, with so many blocks of so many threads; returns at once."""

    def record(self, work: Work) -> Recording:
        """What `work` launches, as one thing to be launched again and again, which costs little more than one kernel.

        Nothing is run yet. `work` only launches: it takes no memory, copies nothing, and no other thread uses the
        device meanwhile. The arrays it names must stay. A recording is called with the work that it stands for: a
        device for tests compares them.
        """


def check_name(name: str) -> int:
    """The number in "cuda:0". DeviceError for anything else."""
    found = re.fullmatch(r"cuda:(0|[1-9][0-9]?)", name)
    if found is None or int(found[1]) >= MAX_DEVICES:
        raise DeviceError(f'device {name!r}: "cuda:0" to "cuda:{MAX_DEVICES - 1}" is expected')
    return int(found[1])


def uploaded(device: Device, host: NDArray[Any]) -> Array:
    """A new array on the device, with the numbers of `host`."""
    array = device.empty(host.shape, host.dtype)
    device.upload(host, array)
    return array


def blocks_of(items: int, each: int) -> tuple[int, int, int]:
    """As many blocks of `each` items as it takes."""
    return -(-items // each), 1, 1


class Replays:
    """Sequences of launches that come again and again: recorded when they come for the second time."""

    def __init__(self, device: Device, limit: int = 4096) -> None:
        """`limit` bounds how many are kept: they take memory of the driver, too. The first ones are forgotten first."""
        self._device = device
        self._limit = limit
        self._known: dict[Hashable, Recording | None] = {}

    def run(self, key: Hashable, work: Work) -> None:
        """Do `work` (see Device.record). The same key means the same launches with the same arguments."""
        if key not in self._known:
            if len(self._known) >= self._limit:
                del self._known[next(iter(self._known))]
            self._known[key] = None  # perhaps it never comes again
            work()
            return
        recording = self._known[key]
        if recording is None:
            recording = self._known[key] = self._device.record(work)
        recording(work)
