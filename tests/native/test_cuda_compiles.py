"""The CUDA kernels' text is what NVIDIA's run-time compiler takes; that needs no GPU."""

from __future__ import annotations

import pytest
from emulated_device import EmulatedDevice
from nvrtc import compiled

from native.cuda.source import OPTIONS, UNITS, unit


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_compiles_for_a_gpu(name: str) -> None:
    code = compiled(unit(name), f"{name}.cu", (*OPTIONS, "--gpu-architecture=sm_90"))
    for kernel in EmulatedDevice().kernels(name):
        assert b".text." + kernel.encode() + b"\0" in code, kernel


def test_the_oldest_gpu_that_has_the_instructions() -> None:
    assert compiled(unit("rows"), "rows.cu", (*OPTIONS, "--gpu-architecture=sm_75"))


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match=r"bad\.cu\(1\): error: identifier .nothing. is undefined"):
        compiled('extern "C" __global__ void bad() { nothing(); }', "bad.cu", OPTIONS)
