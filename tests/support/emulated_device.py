"""A device without a GPU: the text of the CUDA kernels, compiled for this processor and run thread by thread.

Slow, and as strict as can be: every launch's arguments are checked against the kernel's own signature. What it computes
is what the text says; that a GPU and its compiler make the same of it is for tests/gpu to show.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import re
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from native.cuda.device import Argument, Array, DeviceError, Recording, Work
from native.cuda.source import UNITS, unit

ROOT = Path(__file__).parents[2]
SHIM = ROOT / "tests" / "native" / "cuda_on_cpu.h"
BUILT = ROOT / "build" / "cuda_on_cpu"
FLAGS = (
    "-std=c++20",
    "-O1",
    "-U_FORTIFY_SOURCE",  # fibers jump between stacks
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-Wno-unknown-pragmas",
)
MEMORY = 1 << 30
"""Bytes that the device claims to have."""
ALIGNED = 256

_SIGNATURE = re.compile(r'extern "C"\s+void (\w+)\(([^)]*)\)')
_NUMBERS = {
    "int": np.int32,
    "float": np.float32,
    "double": np.float64,
    "long long": np.int64,
}
_POINTED = {
    "int *": "i4",
    "float *": "f4",
    "double *": "f8",
    "long long *": "i8",
    "unsigned long long *": "u8",
    "int8_t *": "i1",
    "uint8_t *": "u1",
    "uint8_t * *": "u8",  # a table of addresses
}

_ONE_AT_A_TIME = threading.Lock()
"""Kernels share their fibers and what they call shared memory."""


class EmulatedDevice:
    """A `Device` in this process's own memory."""

    name = "cuda:0"
    description = "an emulated device"

    def __init__(self, memory: int = MEMORY) -> None:
        self.launched: list[str] = []
        """Kernels, in the order of their launches."""
        self.recorded: list[list[str]] = []
        """The kernels of each recording."""
        self._recording: list[tuple[Any, ...]] | None = None
        self.room: int | None = None
        """Bytes of the largest array that can be had; None is no limit."""
        self._memory = memory
        with ThreadPoolExecutor(2) as compilers:
            self._units = dict(zip(UNITS, compilers.map(_Unit, UNITS), strict=True))

    def kernels(self, unit: str) -> list[str]:
        """What the unit of that name has."""
        return list(self._units[unit].signatures)

    def use(self) -> None:
        return

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        self._check_not_recording()
        wanted = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self.room is not None and wanted > self.room:
            raise DeviceError(f"device {self.name}: no room for {wanted} bytes; {self.room} of {self._memory} are free")
        raw = np.full(wanted + ALIGNED, 0xA5, np.uint8)  # what nobody wrote shows
        start = -raw.ctypes.data % ALIGNED
        return cast("Array", raw[start : start + wanted].view(dtype).reshape(shape))

    def record(self, work: Work) -> Recording:
        launches = self._launches(work)
        self.recorded.append([kernel for kernel, *_ in launches])
        recorded_from: Work | None = work

        def replay(work: Work) -> None:
            nonlocal recorded_from
            if work is not recorded_from:  # which has been done once: rows may be quantised by now
                found = [_comparable(launch) for launch in self._launches(work)]
                if found != [_comparable(launch) for launch in launches]:
                    raise AssertionError(f"what was recorded is not the work that it stands for: {found}")
            recorded_from = None
            for launch in launches:
                self.launch(*launch)

        return replay

    def _launches(self, work: Work) -> list[tuple[Any, ...]]:
        launches = self._recording = []
        try:
            work()
        finally:
            self._recording = None
        return launches

    def upload(self, host: NDArray[Any], to: Array) -> None:
        self._check_not_recording()
        target = _numpy(to)
        if host.shape != target.shape or host.dtype != target.dtype:
            raise ValueError(f"{host.shape} {host.dtype} for an array of {target.shape} {target.dtype}")
        target[...] = host

    def download(self, array: Array) -> NDArray[Any]:
        self._check_not_recording()
        return _numpy(array).copy()

    def zero(self, array: Array) -> None:
        self._check_not_recording()
        _numpy(array)[...] = 0

    def finish(self) -> None:
        return

    def memory(self) -> tuple[int, int]:
        return self._memory, self._memory

    def address(self, array: Array) -> int:
        return int(_numpy(array).ctypes.data)

    def launch(self, kernel: str, blocks: tuple[int, int, int], threads: int, *arguments: Argument) -> None:
        if self._recording is not None:
            self._recording.append((kernel, blocks, threads, *arguments))
            return
        self.launched.append(kernel)
        unit = next((one for one in self._units.values() if kernel in one.signatures), None)
        if unit is None:
            raise LookupError(f"there is no kernel {kernel!r}")
        unit.run(kernel, blocks, threads, arguments)

    def _check_not_recording(self) -> None:
        if self._recording is not None:
            raise RuntimeError("nothing but launches is to be recorded")


def emulated_device(name: str = "cuda:0") -> EmulatedDevice:
    """In place of `open_device`."""
    if name != EmulatedDevice.name:
        raise DeviceError(f"device {name}: there are 1 here, cuda:0 to cuda:0 are expected")
    return EmulatedDevice()


class _Unit:
    """One of native.cuda's units as a library."""

    def __init__(self, name: str) -> None:
        self._library, self.signatures = _built(name)

    def run(self, kernel: str, blocks: tuple[int, int, int], threads: int, arguments: tuple[Argument, ...]) -> None:
        kinds = self.signatures[kernel]
        if len(kinds) != len(arguments):
            raise TypeError(f"{kernel} takes {len(kinds)} arguments, {len(arguments)} given")
        if not all(0 < many < 2**31 for many in blocks) or max(blocks[1:]) >= 2**16 or not 0 < threads <= 1024:
            raise ValueError(f"{kernel}: {blocks} blocks of {threads} threads")
        values = [_passed(kernel, *one) for one in zip(kinds, arguments, strict=True)]
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        launch = (ctypes.c_uint * 4)(*blocks, threads)
        with _ONE_AT_A_TIME:
            getattr(self._library, f"run_{kernel}")(launch, addresses)


def _comparable(launch: tuple[Any, ...]) -> list[Any]:
    """Arrays by their addresses, which is all that a GPU knows of them."""
    return [one.ctypes.data if isinstance(one, np.ndarray) else one for one in launch]


def _passed(kernel: str, kind: str, argument: Argument) -> Any:
    """The argument as C has it; TypeError unless it is exactly what the kernel declares."""
    if kind in _NUMBERS:
        if not isinstance(argument, np.generic) or argument.dtype != _NUMBERS[kind]:
            raise TypeError(f"{kernel}: {kind} expected, found {type(argument).__name__}")
        return (ctypes.c_char * argument.nbytes).from_buffer_copy(argument.tobytes())
    if argument is None:
        return ctypes.c_void_p(None)
    array = cast("NDArray[Any]", argument)
    if array.dtype.str[1:] != _POINTED[kind] or not array.flags.c_contiguous:
        raise TypeError(f"{kernel}: {kind} expected, found {array.dtype}, contiguous {array.flags.c_contiguous}")
    return ctypes.c_void_p(array.ctypes.data)


def _numpy(array: Array) -> NDArray[Any]:
    return cast("NDArray[Any]", array)


@cache
def _built(name: str) -> tuple[ctypes.CDLL, dict[str, list[str]]]:
    text = f'#include "{SHIM.name}"\n' + _without_types(unit(name))
    library = ctypes.CDLL(str(_library(name, text)))
    return library, json.loads(ctypes.c_char_p.in_dll(library, "signatures").value or b"")


def _library(name: str, text: str) -> Path:
    key = hashlib.sha256("".join([text, SHIM.read_text(), Path(__file__).read_text()]).encode()).hexdigest()[:16]
    BUILT.mkdir(parents=True, exist_ok=True)
    library = BUILT / f"{name}-{key}.so"
    with (BUILT / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes of one cluster start at once
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=BUILT) as draft:
                built = Path(draft) / "unit.so"
                command = [_compiler(), *FLAGS, f"-I{SHIM.parent}", "-x", "c++", "-", "-o", str(built)]
                subprocess.run(command, input=text + _entries(_signatures(text)), text=True, check=True)
                os.replace(built, library)
    return library


def _signatures(text: str) -> dict[str, list[str]]:
    """The kernels of a text, and what each parameter is declared as."""
    command = [_compiler(), "-E", "-P", "-x", "c++", "-std=c++20", f"-I{SHIM.parent}", "-"]
    expanded = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return {found[1]: [_kind(one) for one in found[2].split(",")] for found in _SIGNATURE.finditer(expanded)}


def _entries(signatures: dict[str, list[str]]) -> str:
    """C++ by which a library's kernels are run, and says what it has."""
    runs = [
        f'extern "C" void run_{kernel}(Launch *launch, void **arguments) {{ run({kernel}, *launch, arguments); }}\n'
        for kernel in signatures
    ]
    return "".join(runs) + f'extern "C" {{ extern const char *const signatures = R"({json.dumps(signatures)})"; }}\n'


def _without_types(text: str) -> str:
    """<cstdint> has them, with other spellings."""
    return re.sub(r"^typedef .*;\n", "", text, flags=re.MULTILINE)


def _compiler() -> str:
    return os.environ.get("CXX", "c++")


def _kind(parameter: str) -> str:
    """What a parameter is declared as, without its name and without const."""
    return " ".join(parameter.replace("const", " ").replace("*", " * ").split()[:-1])
