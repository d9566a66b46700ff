"""The dense half of a step on a GPU: weights, caches and activations in its memory; the same bits as on the CPU.

The host looks up embeddings, learns which experts were chosen, and gets the logits. `native/cuda` has the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import native
from coordinator.activations import Activations
from coordinator.cuda_cache import AttentionMemory, CudaCache, CudaWindow
from coordinator.dense_half import MOST_TOGETHER
from coordinator.kv import check_kv, no_room
from coordinator.rope import rotation
from coordinator.sums import LayerSums
from coordinator.weights import DenseWeights
from coordinator.weights import FeedForward as Matrices
from coordinator.window import Window, side_by_side
from native import cuda
from native.cuda import elementwise
from native.cuda.device import NO_FAULT, Replays, uploaded
from native.cuda.rows import packed_bytes
from protocol.errors import ConfigError
from protocol.geometry import Geometry
from protocol.gguf import TensorInfo
from protocol.messages import F32, I32
from protocol.model import Model

RECORDED_ROWS = 8
"""Launches of windows of so many rows at most are recorded."""
ALIGNED = 256
"""Bytes: where codes in a device's memory begin."""
MAX_HEAD_DIM = 512
"""A query lies in the shared memory of a block (native/cuda/attention.cu)."""


class CudaDense:
    """The dense weights at work on a device (a `DenseHalf`). The buffers are shared by all steps: one at a time."""

    def __init__(self, model: Model, device: cuda.Device, max_rows: int, kv: str) -> None:
        """`kv` is one of KV_TYPES; no step has more than `max_rows` rows. `model` stays open.

        ModelError if it lacks a dense tensor, or one has another shape or a type that no kernel runs; ConfigError if
        the device has no room, or heads are too wide.
        """
        check_kv(kv)
        geometry = self.geometry = model.geometry
        if geometry.head_dim > MAX_HEAD_DIM:
            raise ConfigError(
                f"heads of {geometry.head_dim} columns, {MAX_HEAD_DIM} at most are expected on device {device.name}"
            )
        self.device = device
        self.kv = kv
        try:
            self.weights = DenseWeights.of(model, self._matrix, lambda vector: uploaded(device, vector))
            turns = rotation(geometry.rotary, geometry.head_dim)
            self.frequencies, self.magnitude = uploaded(device, turns.frequencies), turns.magnitude
            self.buffers = Activations.of(geometry, max_rows, device.empty)
            self.memory = Memory(device, geometry, max_rows)
            self.elsewhere = device.empty((max_rows, geometry.width), np.int64)
            self.networks = {
                layer: _Network(device, geometry, matrices) for layer, matrices in self.weights.feed_forward.items()
            }
        except cuda.DeviceError as error:
            raise ConfigError(f"the dense weights do not fit: {error}") from None
        self.host_sums = np.zeros((max_rows, geometry.width), np.int64)
        self.no_fault = np.full(1, NO_FAULT, np.int32)
        self.fault = uploaded(device, self.no_fault)  # of the head's rows
        self.replays = Replays(device)

    def new_cache(self, positions: int) -> CudaCache:
        """Memory for all positions. RequestError if the device has no room."""
        try:
            return CudaCache(self.device, self.geometry, positions, self.kv)
        except cuda.DeviceError as error:
            raise no_room(positions, self.geometry, self.kv, f"the memory of {self.device.name}") from error

    def begin(self, windows: Sequence[Window]) -> list[CudaStep]:
        """Embed the windows' ids and look up their rotations. Together they have `max_rows` rows at most."""
        places = zip(windows, side_by_side(windows), strict=True)
        return [CudaStep(self, window, first, index) for index, (window, (first, _)) in enumerate(places)]

    def logits(self, rows: list[int]) -> F32:
        """Head of the rows named, a new array (len(rows), vocabulary). NonFiniteError(index into `rows`)."""
        geometry, device = self.geometry, self.device
        if not rows:
            return np.empty((0, geometry.vocabulary), np.float32)
        normed = device.empty((len(rows), geometry.width), np.float32)
        for at, first, count in _runs(rows):
            x, to = self.buffers.x[first : first + count], normed[at : at + count]
            elementwise.rms_norm(device, x, self.weights.output_norm, geometry.norm_eps, to)
        on_device = device.empty((len(rows), geometry.vocabulary), np.float32)
        packed = self.memory.packed[: packed_bytes(len(rows), geometry.width)]
        device.upload(self.no_fault, self.fault)
        multiply(
            device, cuda.CudaRows.of_values(device, normed, packed), (self.weights.head,), (on_device,), self.fault
        )
        logits: F32 = device.download(on_device)
        raise_fault(int(device.download(self.fault)[0]))
        finite = np.isfinite(logits).all(axis=1)
        if not finite.all():
            raise native.NonFiniteError("a logit is NaN or infinite", int(finite.argmin()))
        return logits

    def _matrix(self, info: TensorInfo) -> cuda.CudaWeights:
        """A copy, read past the mapping: a file that shrank meanwhile is a ModelError."""
        columns, rows = info.shape
        data = np.frombuffer(info.file.read(info.offset, info.bytes), np.uint8)
        if info.packed:  # its kernels read rows
            groups, data = data, np.empty_like(data)
            native.unpack_rows(int(info.type), rows, columns, groups, data)
        return cuda.CudaWeights(self.device, data, int(info.type), rows, columns)


class Memory:
    """What steps need beside their activations, for up to `rows` rows together; used again by every step."""

    def __init__(self, device: cuda.Device, geometry: Geometry, rows: int) -> None:
        half, self.widest = geometry.head_dim // 2, max(geometry.width, geometry.heads * geometry.head_dim)
        self._routed_columns = 2 * geometry.experts_used
        self.attention = AttentionMemory(device, geometry, rows)
        self.cos, self.sin = (device.empty((rows, half), np.float32) for _ in range(2))
        self.packed = device.empty((packed_bytes(rows, self.widest) + ALIGNED,), np.uint8)
        self.routed = device.empty((MOST_TOGETHER + rows * self._routed_columns,), np.int32)

    def packed_of(self, first: int, rows: int) -> cuda.Array:
        """Codes and scales of so many rows: two steps that are under way each have their own."""
        start = -(-packed_bytes(first, self.widest) // ALIGNED) * ALIGNED
        return self.packed[start : start + packed_bytes(rows, self.widest)]

    def routed_of(self, first: int, rows: int, index: int) -> cuda.Array:
        """Number of the first bad row, ids (rows, k) and weights (rows, k), so that one copy fetches them all."""
        start = index + first * self._routed_columns
        return self.routed[start : start + 1 + rows * self._routed_columns]


class CudaStep:
    """One window on a device (a `DenseStep`)."""

    def __init__(self, dense: CudaDense, window: Window, first: int, index: int) -> None:
        """`first` is the window's first row among those of all that are begun together, `index` its own number."""
        rows, geometry, device, memory = window.rows, dense.geometry, dense.device, dense.memory
        end = first + rows
        self._dense, self._device, self._weights, self._geometry = dense, device, dense.weights, geometry
        self._first, self._rows = first, rows
        buffers = self._buffers = dense.buffers.part(first, end)
        device.upload(dense.weights.embedding.dequantise(0, window.ids), buffers.x)
        self._recorded = rows <= RECORDED_ROWS
        self._window = CudaWindow(device, window, memory.attention, first, recorded=self._recorded)
        self._cos, self._sin = memory.cos[first:end], memory.sin[first:end]
        elementwise.rope_table(device, self._window.position, dense.frequencies, dense.magnitude, self._cos, self._sin)
        self._packed = memory.packed_of(first, rows)
        self._routed = memory.routed_of(first, rows, index)
        self._fault = self._routed[:1]
        device.upload(dense.no_fault, self._fault)
        device.zero(buffers.sums)  # the step before may have ended between two layers
        host_sums = dense.host_sums[first:end]
        host_sums.fill(0)
        self.sums = LayerSums(host=host_sums, device=buffers.sums)
        """Where the next layer's experts are added up, (rows, width)."""

    def attend(self, layer: int) -> None:
        """x += attention of x; keys and values of the rows are stored. What is not finite shows in `route`."""
        self._again(("attend", layer, self._window.blocks), lambda: self._attend(layer))

    def route(self, layer: int, quantise: bool) -> tuple[cuda.CudaRows, I32, F32]:
        """What the experts take, and which of them: activation rows, ids and weights (rows, k). NonFiniteError(row)."""
        count, k = self._rows, self._geometry.experts_used
        rows = self._packed_rows(self._buffers.normed)
        self._again(("route", layer), lambda: self._route(layer, rows, quantise))
        rows.quantised = quantise or self._weights.routers[layer].quantised  # recorded launches leave no such mark
        routed = self._device.download(self._routed)
        raise_fault(int(routed[0]))
        ids, weights = routed[1:].reshape(2, count, k)
        return rows, ids, weights.view(np.float32)

    def combine(self) -> None:
        """x += the layer's experts: rounded to fp32 once, however many there were."""
        elsewhere, sums = None, self.sums
        if sums.host_used:
            elsewhere = self._dense.elsewhere[self._first : self._first + self._rows]
            self._device.upload(sums.host, elsewhere)
            sums.host.fill(0)
            sums.host_used = False
        elementwise.combine(self._device, self._buffers.x, self._buffers.sums, elsewhere)

    def feed_forward(self, layer: int) -> None:
        """x += what a dense layer has in place of experts: one expert for all rows. NonFiniteError(row)."""
        self._ffn_norm(layer)
        rows = self._packed_rows(self._buffers.normed)
        self._dense.networks[layer].run(rows, self._buffers.normed, self._buffers.sums)
        raise_fault(int(self._device.download(self._fault)[0]))  # of `attend`, which no `route` will tell
        elementwise.add(self._device, self._buffers.x, self._buffers.normed)

    # --- launches -------------------------------------------------------------------------------------------------

    def _again(self, key: tuple[object, ...], launches: Callable[[], None]) -> None:
        """Steps of a few rows are all alike, and what launches them costs more than what they do: see Device.record."""
        if self._recorded:
            self._dense.replays.run((self._first, self._rows, *key), launches)
        else:
            launches()

    def _attend(self, layer: int) -> None:
        weights, buffers = self._weights.layers[layer], self._buffers
        self._norm(buffers.x, weights.attention_norm, buffers.normed)
        matrices = (weights.query, weights.key, weights.value)
        self._multiply(buffers.normed, matrices, (buffers.query, buffers.key, buffers.value))
        for heads, norm in ((buffers.query, weights.query_norm), (buffers.key, weights.key_norm)):
            self._norm(heads, norm, heads)
            elementwise.rope(self._device, heads, self._cos, self._sin)
        self._window.store(layer, buffers.key, buffers.value)
        self._window.attend(layer, buffers.query, buffers.attended)
        self._multiply(buffers.attended, (weights.output,), (buffers.normed,))
        elementwise.add(self._device, buffers.x, buffers.normed)

    def _route(self, layer: int, rows: cuda.CudaRows, quantise: bool) -> None:
        geometry, router = self._geometry, self._weights.routers[layer]
        self._ffn_norm(layer)
        if quantise or router.quantised:
            rows.quantise(self._fault)
        cuda.matmul(self._device, router, rows, self._buffers.router)
        normalise, scale = geometry.normalise_weights, geometry.weight_scale
        elementwise.route(self._device, self._buffers.router, geometry.experts_used, normalise, scale, self._routed)

    def _ffn_norm(self, layer: int) -> None:
        buffers = self._buffers
        self._norm(buffers.x, self._weights.layers[layer].ffn_norm, buffers.normed)

    def _packed_rows(self, values: cuda.Array) -> cuda.CudaRows:
        rows, columns = values.shape
        return cuda.CudaRows.of_values(self._device, values, self._packed[: packed_bytes(rows, columns)])

    def _multiply(self, x: cuda.Array, matrices: Sequence[cuda.CudaWeights], outs: Sequence[cuda.Array]) -> None:
        multiply(self._device, self._packed_rows(x), matrices, outs, self._fault)

    def _norm(self, x: cuda.Array, weight: cuda.Array, out: cuda.Array) -> None:
        elementwise.rms_norm(self._device, x, weight, self._geometry.norm_eps, out)


def multiply(
    device: cuda.Device,
    rows: cuda.CudaRows,
    matrices: Sequence[cuda.CudaWeights],
    outs: Sequence[cuda.Array],
    fault: cuda.Array,
) -> None:
    """Each out = rows @ matrix.T; they are quantised once for all of them, if one needs that."""
    if any(matrix.quantised for matrix in matrices):
        rows.quantise(fault)
    for matrix, out in zip(matrices, outs, strict=True):
        cuda.matmul(device, matrix, rows, out)


def raise_fault(row: int) -> None:
    """NonFiniteError unless it is NO_FAULT: the first row that cannot be quantised."""
    if row != NO_FAULT:
        raise native.NonFiniteError(f"row {row} holds NaN or infinity", row)


class _Network:
    """A dense layer's feed-forward network: one expert for all rows."""

    def __init__(self, device: cuda.Device, geometry: Geometry, matrices: Matrices[cuda.CudaWeights]) -> None:
        gate, up, down = matrices
        self._table = cuda.ExpertTable(device, gate.type, up.type, down.type, experts=1)
        self._table.admit(0, gate.data, up.data, down.data)
        self._network = cuda.FeedForward(device, geometry.width, matrices.gate.rows)

    def run(self, rows: cuda.CudaRows, out: cuda.Array, no_sums: cuda.Array) -> None:
        """out (rows, width). NonFiniteError(row)."""
        every = np.arange(rows.count, dtype=np.int32)
        first, one = np.zeros_like(every), np.ones(rows.count, np.float32)
        self._network.run(self._table, rows, first, every, one, every, out, no_sums)
        try:
            self._network.check()
        except native.EntryRangeError as error:
            reason = "the feed-forward network's output is not finite or 2**22 or more"
            raise native.NonFiniteError(reason, error.args[1]) from None


def _runs(rows: list[int]) -> list[tuple[int, int, int]]:
    """(index, first row, count) of each stretch of consecutive numbers."""
    starts = [at for at, row in enumerate(rows) if at == 0 or row != rows[at - 1] + 1]
    ends = [*starts[1:], len(rows)]
    return [(at, rows[at], end - at) for at, end in zip(starts, ends, strict=True)]
