"""A real GPU, through cupy: kernels are compiled at first use and kept on disk."""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from native.cuda.device import Argument, Array, DeviceError, check_name
from native.cuda.source import OPTIONS, UNITS, unit


@cache
def open_device(name: str) -> Gpu:
    """The device "cuda:N". DeviceError for a bad name, without cupy or a driver, or if there is no such device."""
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
    return Gpu(number, cupy)


class Gpu:
    """A `Device`."""

    def __init__(self, number: int, cupy: Any) -> None:
        self.name = f"cuda:{number}"
        self._cupy = cupy
        self._device = cupy.cuda.Device(number)
        self._functions: dict[str, Any] = {}
        self.use()
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        self._arch = f"sm_{properties['major']}{properties['minor']}"
        total = properties["totalGlobalMem"] / 2**30
        self.description = f"{properties['name'].decode()}, {total:.1f} GiB, {self._arch}"
        self._modules = [self._load(name) for name in UNITS]

    def use(self) -> None:
        self._device.use()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
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
        to.set(host)  # type: ignore[attr-defined]

    def download(self, array: Array) -> NDArray[Any]:
        host: NDArray[Any] = array.get()  # type: ignore[attr-defined]
        return host

    def zero(self, array: Array) -> None:
        array.data.memset_async(0, array.nbytes)  # type: ignore[attr-defined]

    def finish(self) -> None:
        self._cupy.cuda.get_current_stream().synchronize()

    def memory(self) -> tuple[int, int]:
        free, total = self._cupy.cuda.runtime.memGetInfo()
        return free + self._cupy.get_default_memory_pool().free_bytes(), total

    def address(self, array: Array) -> int:
        return int(array.data.ptr)  # type: ignore[attr-defined]

    def launch(self, kernel: str, blocks: tuple[int, int, int], threads: int, *arguments: Argument) -> None:
        function = self._functions.get(kernel) or self._find(kernel)
        function(blocks, (threads, 1, 1), tuple(np.uint64(0) if one is None else one for one in arguments))

    def _find(self, kernel: str) -> Any:
        for module in self._modules:
            try:
                function = self._functions[kernel] = module.get_function(kernel)
            except self._cupy.cuda.driver.CUDADriverError:
                continue
            return function
        raise LookupError(f"there is no kernel {kernel!r}")

    def _load(self, name: str) -> Any:
        return self._cupy.RawModule(path=str(self._cubin(name)))

    def _cubin(self, name: str) -> Path:
        """The compiled unit: from the disk if the same text was compiled for the same GPU before."""
        text, options = unit(name), (*OPTIONS, f"--gpu-architecture={self._arch}")
        version = self._cupy.cuda.nvrtc.getVersion()
        key = hashlib.sha256(repr((text, options, version)).encode()).hexdigest()[:24]
        file = _cache_folder() / f"{name}-{self._arch}-{key}.cubin"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            code = self._compile(name, text, options)
            with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as draft:
                draft.write(code)
            os.replace(draft.name, file)  # whole, or not there
        return file

    def _compile(self, name: str, text: str, options: tuple[str, ...]) -> bytes:
        nvrtc = self._cupy.cuda.nvrtc
        program = nvrtc.createProgram(text, f"{name}.cu", (), ())
        try:
            nvrtc.compileProgram(program, options)
            code: bytes = nvrtc.getCUBIN(program)
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program)
            raise DeviceError(f"device {self.name}: {name}.cu cannot be compiled ({error}): {log[:2000]}") from None
        finally:
            nvrtc.destroyProgram(program)
        return code


def _cache_folder() -> Path:
    """Where cupy keeps its own, if it is told to; else the user's cache."""
    if chosen := os.environ.get("CUPY_CACHE_DIR"):
        return Path(chosen) / "expertmesh"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "expertmesh" / "cuda"
