"""A real GPU, through cupy: kernels are compiled at first use and kept on disk."""

from __future__ import annotations

import logging
import threading
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from native.cuda.device import Argument, Array, DeviceError, Recording, Work, check_name
from native.cuda.source import UNITS

log = logging.getLogger(__name__)

MOST_ARGUMENTS = 32
"""Of a kernel."""


@cache
def open_device(name: str) -> Gpu:
    """The device "cuda:N". DeviceError for a bad name or number, and without cupy, driver or compiler."""
    number = check_name(name)
    try:
        import cupy
    except ImportError as error:
        reason = f"it is used through cupy, which cannot be loaded ({error}): the extras cuda12 and cuda13 install it"
        raise DeviceError(f"device {name}: {reason}") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(f"device {name}: no NVIDIA GPU can be used here ({error})") from None
    if number >= count:
        raise DeviceError(f"device {name}: there are {count} here, cuda:0 to cuda:{count - 1} are expected")
    try:
        cupy.cuda.nvrtc.getVersion()
    except RuntimeError as error:
        reason = "NVIDIA's run-time compiler, which the extras cuda12 and cuda13 install, cannot be loaded"
        raise DeviceError(f"device {name}: {reason}: {' '.join(str(error).split())}") from None
    try:
        return Gpu(number, cupy)
    except DeviceError:
        raise
    except RuntimeError as error:  # of the driver: its memory is full, say
        raise DeviceError(f"device {name}: it cannot be used: {' '.join(str(error).split())}") from error


class Gpu:
    """A `Device`."""

    def __init__(self, number: int, cupy: Any) -> None:
        self.name = f"cuda:{number}"
        self._cupy = cupy
        self._device = cupy.cuda.Device(number)
        self._thread = threading.local()
        self._functions: dict[str, Any] = {}
        self._recording = False
        self._device.use()
        self._stream = cupy.cuda.Stream(non_blocking=True)  # of all threads; the default one cannot be recorded
        self.use()
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        arch = f"sm_{properties['major']}{properties['minor']}"
        total = properties["totalGlobalMem"] / 2**30
        self.description = f"{properties['name'].decode()}, {total:.1f} GiB, {arch}"
        self._modules = [self._loaded(name, arch) for name in UNITS]

    def use(self) -> None:
        self._device.use()
        self._stream.use()
        self._thread.cells = _Cells()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        if self._recording:
            raise RuntimeError("memory is not to be taken while launches are recorded")
        try:
            array: Array = self._cupy.empty(shape, dtype)
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            free, total = self.memory()
            wanted = int(np.prod(shape)) * np.dtype(dtype).itemsize
            raise DeviceError(
                f"device {self.name}: no room for {wanted} bytes; {free} of {total} bytes are free"
            ) from error
        return array

    def upload(self, host: NDArray[Any], to: Array) -> None:
        if host.shape != to.shape or host.dtype != to.dtype or not host.flags.c_contiguous:
            raise ValueError(f"{host.shape} {host.dtype} for an array of {to.shape} {to.dtype}")
        if host.nbytes:  # from pageable memory: `host` has been read when this returns
            self._copy(self.address(to), host.ctypes.data, host.nbytes, self._cupy.cuda.runtime.memcpyHostToDevice)

    def download(self, array: Array) -> NDArray[Any]:
        host = np.empty(array.shape, array.dtype)
        if host.nbytes:
            self._copy(host.ctypes.data, self.address(array), host.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost)
        self.finish()
        return host

    def zero(self, array: Array) -> None:
        array.data.memset_async(0, array.nbytes)  # type: ignore[attr-defined]

    def finish(self) -> None:
        self._stream.synchronize()

    def memory(self) -> tuple[int, int]:
        free, total = self._cupy.cuda.runtime.memGetInfo()
        return free + self._cupy.get_default_memory_pool().free_bytes(), total

    def address(self, array: Array) -> int:
        return int(array.data.ptr)  # type: ignore[attr-defined]

    def launch(self, kernel: str, blocks: tuple[int, int, int], threads: int, *arguments: Argument) -> None:
        function = self._functions.get(kernel) or self._find(kernel)
        cells = self._thread.cells
        cells.fill(arguments)
        self._cupy.cuda.driver.launchKernel(
            function.ptr, *blocks, threads, 1, 1, 0, self._stream.ptr, cells.pointers, 0
        )

    def record(self, work: Work) -> Recording:
        self._recording = True
        try:
            self._stream.begin_capture()
            try:
                work()
            finally:
                graph = self._stream.end_capture()
        except self._cupy.cuda.runtime.CUDARuntimeError as error:  # the driver has no memory for it, say
            log.warning("device %s: launches cannot be recorded: %s", self.name, error)
            return lambda work: work()
        finally:
            self._recording = False
        return lambda work: graph.launch()

    def _copy(self, to: int, source: int, size: int, kind: int) -> None:
        self._cupy.cuda.runtime.memcpyAsync(to, source, size, kind, self._stream.ptr)

    def _find(self, kernel: str) -> Any:
        for module in self._modules:
            try:
                function = self._functions[kernel] = module.get_function(kernel)
            except self._cupy.cuda.driver.CUDADriverError:
                continue
            return function
        raise LookupError(f"there is no kernel {kernel!r}")

    def _loaded(self, name: str, arch: str) -> Any:
        module = self._cupy.cuda.Module()
        from native.cuda.cubins import cubin  # who has no GPU compiles nothing

        module.load(cubin(self._cupy.cuda.nvrtc, name, arch))
        return module


class _Cells:
    """Arguments of a launch as the driver takes them: an address of each. cupy's own way takes twice as long."""

    def __init__(self) -> None:
        self._addresses = np.zeros(MOST_ARGUMENTS, np.uint64)  # 8 bytes for each, of which a kernel reads what it needs
        views = {kind: self._addresses.view(kind) for kind in (np.int32, np.int64, np.float32, np.float64)}
        self._views = {np.dtype(kind).char: view[:: view.size // MOST_ARGUMENTS] for kind, view in views.items()}
        self._table = self._addresses.ctypes.data + 8 * np.arange(MOST_ARGUMENTS, dtype=np.uint64)
        self.pointers: int = self._table.ctypes.data

    def fill(self, arguments: tuple[Argument, ...]) -> None:
        """One after the other: what the driver is called with next."""
        for place, argument in enumerate(arguments):
            if argument is None:
                self._addresses[place] = 0
            elif isinstance(argument, np.generic):
                self._views[argument.dtype.char][place] = argument
            else:
                self._addresses[place] = argument.data.ptr  # type: ignore[attr-defined]
