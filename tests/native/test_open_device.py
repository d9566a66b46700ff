"""What is said when a device cannot be opened, with a cupy that fails like the real one."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from coordinator.config import is_device
from native.cuda import DeviceError, check_name, gpu


class CUDARuntimeError(RuntimeError):
    pass


def cupy_with(devices: int = 1, driver: bool = True, compiler: bool = True) -> SimpleNamespace:
    def count() -> int:
        if not driver:
            raise CUDARuntimeError("cudaErrorInsufficientDriver: the driver is too old")
        return devices

    def version() -> tuple[int, int]:
        if not compiler:
            raise RuntimeError('Failure finding "libnvrtc.so.12":\nNo such file')
        raise AssertionError("nothing else is wrong")

    runtime = SimpleNamespace(getDeviceCount=count, CUDARuntimeError=CUDARuntimeError)
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, nvrtc=SimpleNamespace(getVersion=version)))


def refusal(name: str) -> str:
    gpu.open_device.cache_clear()
    with pytest.raises(DeviceError) as refused:
        gpu.open_device(name)
    return str(refused.value)


@pytest.mark.parametrize("name", ["cuda", "cuda:", "cuda:x", "cuda:64", "gpu:0", "cuda:0 ", "cuda:-1", "cuda:00"])
def test_a_name_that_is_none(name: str) -> None:
    assert refusal(name) == f'device {name!r}: "cuda:0" to "cuda:63" is expected'


@pytest.mark.parametrize("number", ["", "0", "00", "7", "07", "63", "64", "100", "-1", "x", "\u0663"])
def test_command_lines_take_the_same_names(number: str) -> None:
    """Which load no kernels to tell a bad one, and so have words of their own for it."""
    name, taken = f"cuda:{number}", True
    try:
        check_name(name)
    except DeviceError:
        taken = False
    assert is_device(name) == taken


def test_no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert refusal("cuda:0").startswith("device cuda:0: it is used through cupy, which cannot be loaded (")


@pytest.mark.parametrize(
    ("cupy", "expected"),
    [
        (
            cupy_with(driver=False),
            "no NVIDIA GPU can be used here (cudaErrorInsufficientDriver: the driver is too old)",
        ),
        (cupy_with(devices=2), "there are 2 here, cuda:0 to cuda:1 are expected"),
        (
            cupy_with(devices=4, compiler=False),
            "NVIDIA's run-time compiler, which the extras cuda12 and cuda13 install, cannot be loaded: "
            'Failure finding "libnvrtc.so.12": No such file',
        ),
    ],
)
def test_no_device(cupy: SimpleNamespace, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert refusal("cuda:3") == f"device cuda:3: {expected}"


def test_a_device_whose_driver_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int, cupy: object) -> None:
        raise CUDARuntimeError("cudaErrorMemoryAllocation:\nout of memory")

    cupy = cupy_with()
    cupy.cuda.nvrtc.getVersion = lambda: (12, 9)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(gpu, "Gpu", full)
    assert refusal("cuda:0") == "device cuda:0: it cannot be used: cudaErrorMemoryAllocation: out of memory"
