"""Timers around the compiled kernels, put in their place while a benchmark runs: the product does not know of them.

Where the product has one call for many kernels, the dense half of a layer, these are called one by one
(single_operations.py): the same bits, and more Python between. A kernel belongs to a part of a step by what it does,
and a matrix product by whose matrix it is. What has no part here is told by its own name, so that a new kernel cannot
be overlooked.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from single_operations import SingleStep
from token_bytes import DENSE, DOWN, GATE_UP, HEAD_PART, OUTPUT, QUERY_KEY_VALUE, ROUTER, part_of

import coordinator.dense
import native
from coordinator.weights import DenseWeights
from protocol.geometry import EMBEDDING
from protocol.gguf import TensorInfo
from protocol.messages import RunExperts
from protocol.quant_types import TensorType

EXPERTS, EXPERTS_AGAIN = "experts", "experts again"
QUANTISE, ROPE, ADDED = "norms, quantise", "rope, cache store", "answers added"
PART_OF = {
    "rms_norm": QUANTISE,
    "Rows.quantise": QUANTISE,
    "Weights.dequantise": "embedding",
    "rope": ROPE,
    "rope_table": ROPE,
    "KvCache.store": ROPE,
    "attention": "attention: cache",
    "route": ROUTER,
    "run_experts": EXPERTS,
    "answer_call": EXPERTS,
    "add_combined": "combine",
    "add_rows": "combine",
    "add_answer": ADDED,
    "pack48": "answers packed",
}
"""Of `matmul` it is the matrix's. Other native code, which plans and makes messages, is in the time of who calls it."""
ORDER = (
    "embedding",
    QUANTISE,
    QUERY_KEY_VALUE,
    ROPE,
    "attention: cache",
    OUTPUT,
    ROUTER,
    EXPERTS,
    GATE_UP,
    DOWN,
    DENSE,
    "combine",
    HEAD_PART,
    "sampling",
)
"""Parts as a step meets them; others come after them."""
PRODUCT_STEP = coordinator.dense.Step
METHODS = (("Rows", "quantise"), ("KvCache", "store"), ("Weights", "dequantise"))

Parts = dict[str, dict[str, float]]
"""By part, what was spent on it: the fields of Spent."""


@dataclass(slots=True, kw_only=True)
class Spent:
    """What a part took."""

    seconds: float = 0.0
    calls: int = 0
    operations: float = 0.0
    """Multiplications, and as many additions, of weights."""
    read: float = 0.0
    """Bytes of weights, each once a call."""


class Timers:
    """Once installed, every kernel's time is added to its part."""

    def __init__(self) -> None:
        self.parts: dict[str, Spent] = defaultdict(Spent)
        self.split = False
        """Compute experts twice: first gate and up alone, as a part of its own, then all as EXPERTS_AGAIN, for what
        has been read lies in a cache by then."""
        self._part_of: dict[int, str] = {}
        """By the `id` of the dense weights."""

    def install(self) -> None:
        """For the rest of the process: classes stay what they are, their methods and the functions are wrapped."""
        for name in ("matmul", *PART_OF):
            if "." not in name:
                setattr(native, name, self._timed(name, getattr(native, name)))
        for kind, name in METHODS:
            owner = getattr(native, kind)
            setattr(owner, name, self._timed(f"{kind}.{name}", getattr(owner, name)))
        coordinator.dense.Step = SingleStep  # type: ignore[misc]
        self._watch_dense()

    @contextmanager
    def few_calls(self) -> Iterator[None]:
        """Layers as the product calls them, whose parts no timer sees."""
        coordinator.dense.Step = PRODUCT_STEP  # type: ignore[misc]
        try:
            yield
        finally:
            coordinator.dense.Step = SingleStep  # type: ignore[misc]

    def add(self, part: str, seconds: float) -> None:
        """Something else that took time."""
        self.parts[part].seconds += seconds
        self.parts[part].calls += 1

    def take(self) -> Parts:
        """What was spent since the last time, by part, as plain values."""
        taken, self.parts = self.parts, defaultdict(Spent)
        return {part: asdict(spent) for part, spent in taken.items()}

    def _watch_dense(self) -> None:
        """Note whose matrix is whose when dense weights are opened."""
        made = DenseWeights.of.__func__  # type: ignore[attr-defined]

        def of(cls: type[Any], model: Any, matrix: Callable[[TensorInfo], Any], vector: Any) -> Any:
            def noted(info: TensorInfo) -> Any:
                weights = matrix(info)
                self._part_of[id(weights)] = HEAD_PART if info.name == EMBEDDING else part_of(info.name)
                return weights

            return made(cls, model, noted, vector)

        DenseWeights.of = classmethod(of)  # type: ignore[assignment, method-assign]

    def _timed(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        part = PART_OF.get(name)

        @functools.wraps(kernel)
        def timed(*arguments: Any, **named: Any) -> Any:
            if name == "run_experts" and self.split:
                return self._experts_twice(kernel, arguments)
            began = time.perf_counter()
            result = kernel(*arguments, **named)
            self._note(part or self._matrix(name, arguments), time.perf_counter() - began, arguments)
            return result

        return timed

    def _experts_twice(self, kernel: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """See `split`. Gate and up alone are an expert whose last matrix has one row, of zeros."""
        pool, gate, up, down, rows, expert, row, weight, slot, singles, sums, *_ = arguments
        columns = down.columns
        least = native.Weights(
            np.zeros(down.matrices * columns * 4, np.uint8), TensorType.F32, down.matrices, 1, columns
        )
        nowhere = np.zeros((len(singles), 1), np.float32), np.zeros((len(sums), 1), np.int64)
        for part, last, out in ((GATE_UP, least, nowhere), (EXPERTS_AGAIN, down, (singles, sums))):
            call = (pool, gate, up, last, rows, expert, row, weight, slot, *out)
            began = time.perf_counter()
            kernel(*call)
            self._note(part, time.perf_counter() - began, call)

    def _note(self, part: str, seconds: float, arguments: tuple[Any, ...]) -> None:
        spent = self.parts[part]
        spent.seconds += seconds
        spent.calls += 1
        weights = [each for each in arguments if isinstance(each, native.Weights)]
        rows = [each for each in arguments if isinstance(each, native.Rows)]
        calls = [each for each in arguments if isinstance(each, RunExperts)]
        if not weights or not (rows or calls):  # nothing is multiplied
            return
        entries = [each.entry_expert for each in calls]
        entries += [each for each in arguments if isinstance(each, np.ndarray) and each.dtype == np.int32]
        matrices, uses = 1, rows[0].count if rows else 0
        if entries:  # experts, whose numbers come first
            matrices, uses = len(np.unique(entries[0])), len(entries[0])
        for each in weights:
            spent.operations += 2.0 * uses * each.rows * each.columns
            spent.read += matrices * each.rows * TensorType(each.type).row_bytes(each.columns)

    def _matrix(self, name: str, arguments: tuple[Any, ...]) -> str:
        """The part of a product's matrix, or the kernel's own name."""
        parts = (self._part_of.get(id(each)) for each in arguments)
        return next(filter(None, parts), name)


def in_order(parts: Iterable[str]) -> list[str]:
    """Each once, as a step meets them."""
    place = {part: number for number, part in enumerate(ORDER)}
    return sorted(dict.fromkeys(parts), key=lambda part: place.get(part, len(place)))


def down_alone(parts: Parts, gate_up: dict[str, float]) -> Parts:
    """`parts` of a run with EXPERTS told as gate and up, measured apart, and the rest."""
    told = {part: spent for part, spent in parts.items() if part != EXPERTS}
    if EXPERTS in parts:
        whole = parts[EXPERTS]
        told[GATE_UP] = gate_up
        told[DOWN] = {name: max(0.0, whole[name] - gate_up[name]) for name in whole} | {"calls": whole["calls"]}
    return told
