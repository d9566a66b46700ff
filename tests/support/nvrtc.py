"""NVIDIA's run-time compiler from pip (nvidia-cuda-nvrtc-cu12), which needs no GPU and no driver."""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path


@cache
def library() -> ctypes.CDLL:
    """The compiler; FileNotFoundError if it is not installed."""
    for folder in ("purelib", "platlib"):
        for path in sorted(Path(sysconfig.get_path(folder)).glob("nvidia/*/lib/libnvrtc.so.*")):
            return ctypes.CDLL(str(path))
    raise FileNotFoundError("nvidia-cuda-nvrtc-cu12 is not installed: pip install --editable '.[dev]'")


def compiled(text: str, name: str, options: Sequence[str]) -> bytes:
    """Machine code for the architecture that the options name. ValueError with the compiler's words if it refuses."""
    nvrtc, program = library(), ctypes.c_void_p()
    _ok(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None))
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), given) != 0:
            raise ValueError(_filled(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").decode())
        return _filled(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
    finally:
        _ok(nvrtc.nvrtcDestroyProgram(ctypes.byref(program)))


def _filled(program: ctypes.c_void_p, size_of: str, get: str) -> bytes:
    size = ctypes.c_size_t()
    _ok(getattr(library(), size_of)(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _ok(getattr(library(), get)(program, buffer))
    return buffer.raw


def _ok(code: int) -> None:
    if code != 0:
        raise RuntimeError(f"the run-time compiler failed with code {code}")
