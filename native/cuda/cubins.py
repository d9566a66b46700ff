"""Compiled kernels: made by NVIDIA's run-time compiler, once for each text and kind of GPU, and kept on disk."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from native.cuda.device import DeviceError
from native.cuda.source import OPTIONS, unit

log = logging.getLogger(__name__)

CHECKED = 32
"""Bytes of a digest that a file begins with: half a file, or a damaged one, is compiled again."""


def cubin(nvrtc: Any, name: str, arch: str) -> bytes:
    """Machine code of a unit of kernels for `arch` ("sm_90"). `nvrtc` is cupy's compiler. DeviceError if it refuses."""
    text, options = unit(name), (*OPTIONS, f"--gpu-architecture={arch}")
    key = hashlib.sha256(repr((text, options, nvrtc.getVersion())).encode()).hexdigest()[:24]
    file = cache_folder() / f"{name}-{arch}-{key}.cubin"
    code = _kept(file)
    if code is None:
        log.info("compiling %s.cu for %s, which is done once: %s", name, arch, file)
        code = _compiled(nvrtc, name, text, options)
        with suppress(OSError):  # where nothing can be written it is compiled every time
            _keep(file, code)
    return code


def cache_folder() -> Path:
    """Beside what cupy keeps, if that was told where; else in the user's cache."""
    if chosen := os.environ.get("CUPY_CACHE_DIR"):
        return Path(chosen) / "expertmesh"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "expertmesh" / "cuda"


def _kept(file: Path) -> bytes | None:
    try:
        found = file.read_bytes()
    except OSError:
        return None
    digest, code = found[:CHECKED], found[CHECKED:]
    return code if hashlib.sha256(code).digest() == digest else None


def _keep(file: Path, code: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        draft = Path(folder) / file.name
        draft.write_bytes(hashlib.sha256(code).digest() + code)
        os.replace(draft, file)  # whole, or not there


def _compiled(nvrtc: Any, name: str, text: str, options: tuple[str, ...]) -> bytes:
    program = nvrtc.createProgram(text, f"{name}.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        code: bytes = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        said = nvrtc.getProgramLog(program)[:2000]
        raise DeviceError(f"{name}.cu cannot be compiled ({error}): {said}") from None
    finally:
        nvrtc.destroyProgram(program)
    return code
