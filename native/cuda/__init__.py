"""Kernels in CUDA C++ (docs/arithmetic.md), and what Python needs to run them: the same bits as `native`'s own.

`open_device` alone needs cupy and a GPU. Everything else takes a `Device`, whatever is behind it.
"""

from native.cuda.device import Array, Device, DeviceError, check_name
from native.cuda.experts import ExpertTable, FeedForward
from native.cuda.gpu import open_device
from native.cuda.rows import CudaRows, CudaWeights, matmul

__all__ = [
    "Array",
    "CudaRows",
    "CudaWeights",
    "Device",
    "DeviceError",
    "ExpertTable",
    "FeedForward",
    "check_name",
    "matmul",
    "open_device",
]
