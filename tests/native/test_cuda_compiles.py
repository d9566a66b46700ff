"""The CUDA kernels' text is what NVIDIA's run-time compiler takes; that needs no GPU."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from emulated_device import EmulatedDevice
from nvrtc import compiled

from native.cuda.source import OPTIONS, UNITS, unit

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="pip has NVIDIA's compiler for x86-64")


@pytest.fixture(scope="module")
def code() -> Iterator[dict[str, Future[bytes]]]:
    """Machine code of each unit, which two threads make."""
    with ThreadPoolExecutor(2) as compilers:
        yield {name: compilers.submit(code_for, name, "sm_90") for name in UNITS} | {
            "oldest": compilers.submit(code_for, "rows", "sm_75")
        }


def code_for(name: str, architecture: str) -> bytes:
    return compiled(unit(name), f"{name}.cu", (*OPTIONS, f"--gpu-architecture={architecture}"))


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_compiles_for_a_gpu(name: str, code: dict[str, Future[bytes]]) -> None:
    for kernel in EmulatedDevice().kernels(name):
        assert b".text." + kernel.encode() + b"\0" in code[name].result(), kernel


def test_the_oldest_gpu_that_has_the_instructions(code: dict[str, Future[bytes]]) -> None:
    assert code["oldest"].result()


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match=r"bad\.cu\(1\): error: identifier .nothing. is undefined"):
        compiled('extern "C" __global__ void bad() { nothing(); }', "bad.cu", OPTIONS)
