"""Activation rows and matrices of weights on a device."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

import native
from native.cuda.device import THREADS, Array, Device, blocks_of, uploaded

WARPS = THREADS // 32
SUB = 32
"""Columns that share a scale."""

TYPE_NAMES = {
    0: "f32",
    1: "f16",
    30: "bf16",
    2: "q4_0",
    3: "q4_1",
    6: "q5_0",
    7: "q5_1",
    8: "q8_0",
    12: "q4_k",
    13: "q5_k",
    14: "q6_k",
}
"""What kernels call ggml's types."""
FLOATS = frozenset({0, 1, 30})
"""Types that take fp32 activations."""


def packed_bytes(count: int, columns: int) -> int:
    """Of the codes of so many rows, and their scales behind them."""
    return count * columns + count * (columns // SUB) * 4


class CudaRows:
    """Activation rows on a device, as fp32 values, as int8 codes with their scales, or both. Twin of `native.Rows`."""

    def __init__(self, device: Device, count: int, columns: int, values: Array | None, packed: Array | None) -> None:
        """`values` (count, columns) f32; `packed` (packed_bytes,) u8 has codes and scales, or is memory for them.

        Both must stay as they are for as long as the rows are used.
        """
        self.count = count
        self.columns = columns
        self.values = values
        self.quantised = False
        """Whether codes and scales are those of the values, or will be when what was launched is done."""
        self._device = device
        self._packed = packed
        self._host: dict[bool, native.Rows] = {}

    @staticmethod
    def of_values(device: Device, values: Array, packed: Array | None = None) -> CudaRows:
        """Rows of fp32 `values` (n, columns); their codes and scales go to `packed`, or to new memory."""
        count, columns = values.shape
        return CudaRows(device, count, columns, values, packed)

    @staticmethod
    def uploaded(device: Device, host: native.Rows, quantised: bool) -> CudaRows:
        """Copies of the codes and scales, or of the values, of rows on the host. NonFiniteError if there are none."""
        if quantised:
            parts = [part.view(np.uint8).ravel() for part in host.quantise()]
            rows = CudaRows(device, host.count, host.columns, None, uploaded(device, np.concatenate(parts)))
            rows.quantised = True
        else:
            rows = CudaRows(device, host.count, host.columns, uploaded(device, host.values()), None)
        rows._host[quantised] = host
        return rows

    @property
    def codes(self) -> Array:
        """(count, columns) i8."""
        return self._part(0, self.count * self.columns, np.int8)

    @property
    def scales(self) -> Array:
        """(count, columns / 32) f32."""
        return self._part(self.count * self.columns, packed_bytes(self.count, self.columns), np.float32)

    def quantise(self, fault: Array) -> None:
        """Make codes and scales of the values, once. `fault` (1,) i32 falls to the first row that is not finite."""
        if self.quantised:
            return
        if self.values is None:
            raise ValueError("rows: fp32 values expected")
        if self._packed is None:
            self._packed = self._device.empty((packed_bytes(self.count, self.columns),), np.uint8)
        subs = self.count * self.columns // SUB
        self._device.launch(
            "quantise",
            blocks_of(subs, WARPS),
            THREADS,
            self.values,
            np.int32(self.columns),
            np.int64(subs),
            self.codes,
            self.scales,
            fault,
        )
        self.quantised = True

    def forms(self, type: int) -> tuple[Array | None, Array | None, Array | None]:
        """Codes, scales and values as the kernels of a type of weights take them; ValueError if there are none."""
        if type in FLOATS:
            if self.values is None:
                raise ValueError("rows: fp32 values expected for weights that are not quantised")
            return None, None, self.values
        if not self.quantised:
            raise ValueError("rows: codes and scales expected for quantised weights")
        return self.codes, self.scales, None

    def host(self, quantised: bool) -> native.Rows:
        """The codes and scales, or the values, on the host: copied when first asked for."""
        rows = self._host.get(quantised)
        if rows is None:
            rows = self._host[quantised] = self._downloaded(quantised)
        return rows

    def _downloaded(self, quantised: bool) -> native.Rows:
        codes, _, values = self.forms(-1 if quantised else 0)
        if codes is None:
            assert values is not None
            return native.Rows(self._device.download(values))
        assert self._packed is not None
        packed = self._device.download(self._packed)
        end = self.count * self.columns
        given, scales = packed[:end].view(np.int8), packed[end:].view(np.float32)
        return native.Rows.quantised(given.reshape(self.count, -1), scales.reshape(self.count, -1))

    def _part(self, begin: int, end: int, dtype: DTypeLike) -> Array:
        assert self._packed is not None
        part: Array = self._packed[begin:end].view(dtype).reshape(self.count, -1)
        return part


class CudaWeights:
    """One matrix of weights (rows, columns) in a device's memory, as the file has it. Twin of `native.Weights`."""

    def __init__(self, device: Device, data: NDArray[np.uint8], type: int, rows: int, columns: int) -> None:
        """Copies `data`, the bytes of the whole matrix. DeviceError if there is no room."""
        self.type = type
        self.rows = rows
        self.columns = columns
        self.quantised = type not in FLOATS
        self.data = uploaded(device, data)


def matmul(device: Device, weights: CudaWeights, rows: CudaRows, out: Array) -> None:
    """out (n, weights.rows) f32 = rows @ weights.T; for quantised weights the rows must be quantised."""
    together = 1 if rows.count == 1 else 8
    name = TYPE_NAMES[weights.type]
    across, _, _ = blocks_of(weights.rows, rows_of_block(weights.type))
    device.launch(
        f"matmul_{name}_{together}",
        (across, -(-rows.count // together), 1),
        THREADS,
        weights.data,
        np.int32(weights.rows),
        np.int32(weights.columns),
        *rows.forms(weights.type),
        np.int32(rows.count),
        out,
    )


def rows_of_block(type: int) -> int:
    """Weight rows that a block of dots works on: a team is half a warp for floats, else a warp."""
    return 2 * WARPS if type in FLOATS else WARPS
