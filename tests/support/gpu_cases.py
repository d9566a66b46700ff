"""Row dots and experts computed on a device and on the processor, compared bit for bit; the device may be any.

tests/gpu runs them on a GPU, and tests/native some of them on the emulated device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from random_weights import BLOCKS, random_rows

import native
from native import cuda
from native.cuda.device import NO_FAULT, uploaded
from protocol.messages import F32, I32, I64
from protocol.quant_types import RUNNABLE, TensorType

Random = np.random.Generator
Types = tuple[TensorType, TensorType, TensorType]
"""Of an expert's gate, up and down."""

KINDS = sorted(RUNNABLE)
MIXED: list[Types] = [
    (TensorType(gate), TensorType(up), TensorType(down))
    for gate, up, down in [
        (12, 12, 14), (1, 12, 8), (12, 30, 0), (2, 3, 6), (7, 13, 2), (30, 6, 13), (13, 2, 1), (8, 8, 12), (0, 1, 30),
        (14, 14, 7), (0, 0, 3),
    ]
]  # fmt: skip
"""Types side by side: what a Q4_K_M file has, floats as each of the three, and every type at both ends of an expert."""


def columns_of(kind: TensorType) -> tuple[int, ...]:
    """Lengths of rows to try: less than a block of 256 columns, several, and a short one at the end."""
    if kind.is_float:
        return 24, 96, 776
    return (256, 768, 2048) if kind.block_columns == 256 else (32, 160, 768, 2080)


def named(value: object) -> str:
    """What tests call a type, or several."""
    return "-".join(kind.name for kind in value) if isinstance(value, tuple) else getattr(value, "name", str(value))


def same_bits(found: np.ndarray, expected: np.ndarray, what: object = "") -> None:
    """Fails unless both are equal to the last bit, signs of zeros too."""
    assert found.dtype == expected.dtype
    as_bits = f"u{expected.itemsize}"
    np.testing.assert_array_equal(found.view(as_bits), expected.view(as_bits), err_msg=str(what))


# --- row dots -----------------------------------------------------------------------------------------------------


def check_matmul(device: cuda.Device, kind: TensorType, columns: int, rows: int, count: int, size: float) -> None:
    """`count` random activations times `rows` random rows whose scales are about `size`."""
    rng = np.random.default_rng([int(kind), columns, rows, count])
    data = random_rows(rng, int(kind), rows, columns, size)
    x = rng.standard_normal((count, columns)).astype(np.float32) * np.exp(rng.normal(0, 3, (count, 1))).astype(
        np.float32
    )
    expected = np.empty((count, rows), np.float32)
    on_host = native.Rows(x)
    native.matmul(native.Pool(1), native.Weights(data, int(kind), 1, rows, columns), 0, on_host, expected)
    assert np.isfinite(expected).all()
    out = device.empty(expected.shape, np.float32)
    weights = cuda.CudaWeights(device, data, int(kind), rows, columns)
    for taken in _forms(device, kind, on_host, x):
        device.upload(np.full(expected.shape, np.nan, np.float32), out)
        cuda.matmul(device, weights, taken, out)
        same_bits(device.download(out), expected, (kind.name, columns, rows, count))


def _forms(device: cuda.Device, kind: TensorType, on_host: native.Rows, x: F32) -> list[cuda.CudaRows]:
    """The activations as they come from the host, and made on the device."""
    made = cuda.CudaRows.of_values(device, uploaded(device, x))
    if not kind.is_float:
        fault = uploaded(device, np.full(1, NO_FAULT, np.int32))
        made.quantise(fault)
        assert device.download(fault) == NO_FAULT
    return [cuda.CudaRows.uploaded(device, on_host, quantised=not kind.is_float), made]


def check_quantiser(device: cuda.Device, seed: int) -> None:
    """Codes and scales of rows of every size of number: zeros, subnormal ones, ties, the largest; the first bad row."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((41, 288)).astype(np.float32)
    x *= np.ldexp(np.float32(1), rng.integers(-148, 126, (41, 9))).repeat(32, axis=1).astype(np.float32)
    x[0] = 0
    x[1, ::2] = -0.0
    x[2] = rng.integers(-254, 255, 288) / np.float32(2)  # codes that end in .5 where the largest is 127
    x[2, ::32] = 127
    x[3] = rng.choice(np.array([3.4028235e38, -3.4028235e38, 1e-45], np.float32), 288)
    expected = native.Rows(x).quantise()
    rows, fault = cuda.CudaRows.of_values(device, uploaded(device, x)), uploaded(device, np.full(1, NO_FAULT, np.int32))
    rows.quantise(fault)
    assert device.download(fault) == NO_FAULT
    assert rows.codes is not None
    assert rows.scales is not None
    same_bits(device.download(rows.codes), expected[0], "codes")
    same_bits(device.download(rows.scales), expected[1], "scales")
    x[24, 3], x[22, 287] = np.nan, np.inf
    cuda.CudaRows.of_values(device, uploaded(device, x)).quantise(fault)
    assert device.download(fault) == 22


# --- experts ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """Work for one layer's experts, ascending by expert, and where the answers go."""

    expert: I32
    row: I32
    weight: F32
    slot: I32
    """As `native.run_experts` takes them."""
    singles: int
    """How many of the answers are kept by themselves."""
    rows: int
    """Of activations, and of sums."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]], rows: int, rng: Random, single: float) -> Entries:
        """Of (expert, row) pairs; each answer is kept by itself with the probability `single`, otherwise added up."""
        expert, row = np.array(sorted(pairs), np.int32).reshape(-1, 2).T.copy()
        alone = rng.random(len(row)) < single
        slot = np.where(alone, np.cumsum(alone) - 1, -1 - row).astype(np.int32)
        weight = rng.random(len(row)).astype(np.float32)
        weight[rng.random(len(row)) < 0.05] = 0
        return cls(expert=expert, row=row, weight=weight, slot=slot, singles=int(alone.sum()), rows=rows)


def routed(rng: Random, experts: int, rows: int, k: int, single: float) -> Entries:
    """As a router makes them: each row takes k of the experts."""
    pairs = [(int(expert), row) for row in range(rows) for expert in rng.permutation(experts)[:k]]
    return Entries.of(pairs, rows, rng, single)


def all_to_one(rng: Random, experts: int, rows: int, single: float) -> Entries:
    """All rows take the same expert, one of them another one too."""
    return Entries.of([(1, row) for row in range(rows)] + [(experts - 1, 0)], rows, rng, single)


WORK: dict[str, Callable[[Random, int], Entries]] = {
    "one row, singles": lambda rng, experts: routed(rng, experts, 1, 3, 1.0),
    "one row, a sum": lambda rng, experts: routed(rng, experts, 1, 3, 0.0),
    "one entry": lambda rng, experts: routed(rng, experts, 1, 1, 1.0),
    "many rows": lambda rng, experts: routed(rng, experts, 21, 3, 0.5),
    "all to one": lambda rng, experts: all_to_one(rng, experts, 19, 0.2),
    "nothing": lambda rng, experts: Entries.of([], 2, rng, 1.0),
}
"""Kinds of work, for so many experts."""


class RandomLayer:
    """The experts of a layer with random weights, on the processor and on a device."""

    EXPERTS = 5

    def __init__(self, device: cuda.Device, types: Types, width: int, hidden: int, seed: int = 1) -> None:
        rng = np.random.default_rng([seed, width, hidden, *map(int, types)])
        self.device, self.types, self.width = device, types, width
        shapes = [(hidden, width), (hidden, width), (width, hidden)]
        self.data = [
            random_rows(rng, int(kind), self.EXPERTS * rows, columns, 0.001)
            for kind, (rows, columns) in zip(types, shapes, strict=True)
        ]
        self.quantised_input = not (types[0].is_float or types[1].is_float)
        self._shapes = shapes
        self._table = cuda.ExpertTable(device, types[0], types[1], types[2], self.EXPERTS)
        self._feed_forward = cuda.FeedForward(device, width, hidden)
        self._matrices: dict[int, list[cuda.Array]] = {}
        for expert in range(self.EXPERTS):
            self.admit(expert)

    def admit(self, expert: int) -> None:
        """Put the expert where no other was."""
        parts = [data.reshape(self.EXPERTS, -1)[expert] for data in self.data]
        gate, up, down = self._matrices[expert] = [uploaded(self.device, part) for part in parts]
        self._table.admit(expert, gate, up, down)

    def evict(self, expert: int) -> None:
        """Take the expert away, and its memory."""
        self._table.evict(expert)
        self.device.finish()
        del self._matrices[expert]

    def on_host(self, x: F32, work: Entries) -> tuple[F32, I64]:
        """Singles and sums by the processor."""
        gate, up, down = [
            native.Weights(data, int(kind), self.EXPERTS, rows, columns)
            for data, kind, (rows, columns) in zip(self.data, self.types, self._shapes, strict=True)
        ]
        singles, sums = self._nothing(work)
        lists = work.expert, work.row, work.weight, work.slot
        native.run_experts(native.Pool(1), gate, up, down, native.Rows(x), *lists, singles, sums)
        return singles, sums

    def on_device(self, x: F32, work: Entries) -> tuple[F32, I64]:
        """Singles and sums by the device, with the activations in the form in which they would travel."""
        singles, sums = (uploaded(self.device, host) for host in self._nothing(work))
        rows = cuda.CudaRows.uploaded(self.device, native.Rows(x), self.quantised_input)
        lists = work.expert, work.row, work.weight, work.slot
        self._feed_forward.run(self._table, rows, *lists, singles, sums)
        self._feed_forward.check()
        return self.device.download(singles), self.device.download(sums)

    def check(self, x: F32, work: Entries) -> None:
        """Both give the same bits."""
        found, expected, what = self.on_device(x, work), self.on_host(x, work), [kind.name for kind in self.types]
        same_bits(found[0], expected[0], what)
        same_bits(found[1], expected[1], what)

    def check_error(self, x: F32, work: Entries) -> Exception:
        """Both fail in the same way, and name the same row or entry; the error is returned."""
        errors = []
        for compute in (self.on_host, self.on_device):
            try:
                compute(x, work)
            except (native.EntryRangeError, native.NonFiniteError) as error:
                errors.append(error)
        assert len(errors) == 2, errors
        assert type(errors[0]) is type(errors[1]), errors
        assert errors[0].args == errors[1].args
        return errors[0]

    def _nothing(self, work: Entries) -> tuple[F32, I64]:
        return np.zeros((work.singles, self.width), np.float32), np.zeros((work.rows, self.width), np.int64)


def activations(rng: Random, rows: int, width: int) -> F32:
    """(rows, width), normally distributed."""
    return rng.standard_normal((rows, width)).astype(np.float32)


def sizes_of(types: Types) -> list[tuple[int, int]]:
    """Pairs of width and hidden width that rows of these types can have."""
    gate, up, down = types
    into = max(gate.block_columns, up.block_columns)
    if all(kind.is_float for kind in types):
        return [(96, 40), (264, 136)]
    widths = (256, 768) if into == 256 else (96, 288)
    hiddens = (256, 512) if down.block_columns == 256 else (160, 96)
    return list(zip(widths, hiddens, strict=True))


def check_experts(device: cuda.Device, types: Types, width: int, hidden: int, seeds: Sequence[int] = (0, 1)) -> None:
    """Every kind of work, with other numbers for each seed."""
    layer = RandomLayer(device, types, width, hidden)
    for seed in seeds:
        for name, make in WORK.items():
            rng = np.random.default_rng([seed, *name.encode()])
            work = make(rng, layer.EXPERTS)
            layer.check(activations(rng, work.rows, width), work)


def check_residency(device: cuda.Device) -> None:
    """An expert that left and came back elsewhere gives the same bits, as do the others meanwhile."""
    layer = RandomLayer(device, (TensorType.Q4_K, TensorType.Q4_K, TensorType.Q6_K), 256, 256)
    rng = np.random.default_rng(3)
    x = activations(rng, 4, 256)
    layer.evict(2)
    layer.check(x, Entries.of([(expert, row) for expert in (0, 1, 3, 4) for row in range(4)], 4, rng, 0.5))
    layer.admit(2)
    layer.check(x, routed(rng, layer.EXPERTS, 4, 3, 0.5))


# --- errors -------------------------------------------------------------------------------------------------------


def check_overflow(device: cuda.Device, types: Types) -> None:
    """Router weights that make entries leave the range, or NaN: the lowest is named, and the next run is sound."""
    width, hidden = sizes_of(types)[0]
    layer, rng = RandomLayer(device, types, width, hidden), np.random.default_rng(5)
    x, work = activations(rng, 12, width), routed(rng, layer.EXPERTS, 12, 3, 0.5)
    for bad, value in (([7, 20], 3e38), ([0], np.inf), ([35], np.nan), ([11, 12, 13], -3e38)):
        work.weight[:] = 1e-3
        work.weight[bad] = value
        error = layer.check_error(x, work)
        assert isinstance(error, native.EntryRangeError)
        assert error.args[1] == bad[0]
        work.weight[:] = 1e-3
        layer.check(x, work)


def check_bad_activations(device: cuda.Device, types: Types, value: float) -> None:
    """NaN and infinity among activations that travel as fp32; whoever must have codes names the row, else an entry."""
    width, hidden = sizes_of(types)[0]
    layer, rng = RandomLayer(device, types, width, hidden), np.random.default_rng(6)
    assert not layer.quantised_input
    x, work = activations(rng, 9, width), routed(rng, layer.EXPERTS, 9, 3, 0.5)
    good = x.copy()
    x[4, 17] = x[7, 3] = value
    error = layer.check_error(x, work)
    if isinstance(error, native.NonFiniteError):
        assert error.args[1] == 4
    layer.check(good, work)


def check_damaged_weights(device: cuda.Device) -> None:
    """NaN in the gate or down of one expert: the first of its entries is named."""
    for role, kind in ((0, TensorType.Q4_K), (2, TensorType.Q4_K), (1, TensorType.Q8_0), (2, TensorType.F16)):
        types: Types = (TensorType.Q4_K,) * 3 if kind != TensorType.Q8_0 else (TensorType.Q8_0,) * 3
        types = (*types[:2], kind)
        layer, rng = RandomLayer(device, types, 256, 256), np.random.default_rng(role)
        x, work = activations(rng, 6, 256), routed(rng, layer.EXPERTS, 6, 2, 0.5)
        victim = layer.EXPERTS // 2
        layer.evict(victim)
        layer.data[role].reshape(layer.EXPERTS, -1)[victim, :2] = np.array(np.nan, np.float16).reshape(1).view(np.uint8)
        layer.admit(victim)
        error = layer.check_error(x, work)
        assert work.expert[error.args[1]] == victim


assert set(BLOCKS) == {int(kind) for kind in KINDS}


def check_uploads(device: cuda.Device, sizes: Sequence[int]) -> None:
    """What was uploaded is what the host had then, whatever it is changed to at once; `sizes` in numbers of 4 bytes."""
    for size in sizes:
        host = np.arange(size, dtype=np.uint32)
        arrays = []
        for turn in range(4):
            host += 1
            arrays.append(device.empty(host.shape, host.dtype))
            device.upload(host, arrays[-1])
            host[:] = 7 * turn
            host[:] = np.arange(size, dtype=np.uint32) + turn + 1
        for turn, array in enumerate(arrays):
            same_bits(device.download(array), np.arange(size, dtype=np.uint32) + turn + 1, (size, turn))
